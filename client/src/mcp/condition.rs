//! What a call waits for: the word behind `until`. Pure.

use ostler_proto::limits;
use ostler_proto::methods::For;
use regex::Regex;

use super::words;

/// What a call waits for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Until {
    /// The end.
    #[default]
    Exit,
    /// Any port on which its tree listens.
    AnyPort,
    /// This one.
    Port(u16),
    /// A line that matches.
    Text(String),
    /// No output for so many ms.
    Quiet(u64),
    /// Somebody takes connections there.
    Tcp(String),
}

/// The forms of the word.
pub(crate) const FORMS: &str = "use exit, port, port=N, text=REGEX or quiet=SECONDS";

impl Until {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("until {:?}: {FORMS}", words::cut(text, 60));
        Ok(match text.trim().split_once('=') {
            None => match text.trim() {
                "exit" => Self::Exit,
                "port" => Self::AnyPort,
                _ => return Err(wrong()),
            },
            Some(("port", n)) => match n.trim().parse() {
                Ok(n) if n > 0 => Self::Port(n),
                _ if is_number(n) => {
                    let asked = words::cut(text, 60);
                    return Err(format!("until {asked:?}: a port is 1 to {}", u16::MAX));
                }
                _ => return Err(wrong()),
            },
            Some(("text", pattern)) if !pattern.is_empty() => {
                // Before anything is started: the supervisor says it to who waits, when the command runs already.
                if pattern.len() > limits::PATTERN {
                    let most = limits::PATTERN;
                    return Err(format!("until text has more than {most} bytes"));
                }
                Regex::new(pattern).map_err(|e| {
                    let why = e.to_string();
                    let why = why.lines().next_back().unwrap_or_default();
                    format!("until {:?}: {}", words::cut(text, 60), words::one_line(why))
                })?;
                Self::Text(pattern.into())
            }
            Some(("quiet", seconds)) => {
                let seconds = seconds.trim().trim_end_matches('s');
                let ms = seconds.parse::<f64>().map_or(f64::NAN, |s| s * 1_000.0);
                let (least, most) = limits::mcp::QUIET;
                #[expect(clippy::cast_precision_loss, reason = "a day is few milliseconds")]
                let (least, most) = (least as f64, most as f64);
                if !(least..=most).contains(&ms) {
                    let asked = words::cut(text, 60);
                    let (least, most) = (least / 1_000.0, most / 1_000.0);
                    return Err(format!(
                        "until {asked:?}: quiet is {least} to {most} seconds"
                    ));
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is within the bounds above"
                )]
                Self::Quiet(ms.round() as u64)
            }
            Some(("tcp", address)) if address.contains(':') => Self::Tcp(address.into()),
            _ => return Err(wrong()),
        })
    }

    /// As the supervisor takes it.
    pub(crate) fn on_wire(&self) -> For {
        match self {
            Self::Exit => For::Exit,
            Self::AnyPort => For::AnyPort,
            Self::Port(n) => For::Port(*n),
            Self::Text(pattern) => For::Text(pattern.clone()),
            Self::Quiet(ms) => For::Quiet(*ms),
            Self::Tcp(address) => For::Tcp(address.clone()),
        }
    }

    /// How a status line calls it: `waited 45s for port`, `ended before port`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::AnyPort | Self::Port(_) | Self::Tcp(_) => "port",
            Self::Text(_) => "text",
            Self::Quiet(_) => "quiet",
        }
    }
}

fn is_number(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_everything_else_is_refused_with_the_forms() {
        let read = |text| Until::parse(text);
        assert_eq!(read("exit"), Ok(Until::Exit));
        assert_eq!(read("port"), Ok(Until::AnyPort));
        assert_eq!(read("port=3000"), Ok(Until::Port(3000)));
        assert_eq!(read("text=a=b"), Ok(Until::Text("a=b".into())));
        assert_eq!(read("quiet=0.2"), Ok(Until::Quiet(200)));
        assert_eq!(read("tcp=db:5432"), Ok(Until::Tcp("db:5432".into())));
        assert_eq!(
            read("prot"),
            Err("until \"prot\": use exit, port, port=N, text=REGEX or quiet=SECONDS".into())
        );
        for (number, words) in [
            ("port=0", "a port is 1 to 65535"),
            ("port=99999", "a port is 1 to 65535"),
            ("quiet=0.1", "quiet is 0.2 to 86400 seconds"),
            ("quiet=1000000s", "quiet is 0.2 to 86400 seconds"),
        ] {
            assert_eq!(read(number), Err(format!("until {number:?}: {words}")));
        }
        for bad in [
            "",
            "port=0",
            "port=x",
            "text=",
            "text=(",
            "quiet=0.1",
            "quiet=x",
            "quiet=-1",
            "tcp=x",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
