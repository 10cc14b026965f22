//! What a job inherits from the shell that runs this command: environment, mask, limits. Read, never changed.

use std::collections::BTreeMap;
use std::ffi::OsString;

use ostler_proto::methods::ResourceLimit;

use super::failure::Failure;

/// Returns the caller's environment, whole but for the names left out.
pub(crate) fn environment_without(
    unset: &[String],
) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let kept = std::env::vars_os().filter(|(name, _)| unset.iter().all(|u| name != u.as_str()));
    environment_of(kept)
}

fn environment_of(
    vars: impl Iterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, Option<String>>, Failure> {
    vars.map(|(name, value)| {
        let name = name
            .into_string()
            .map_err(|n| Failure::usage(format!("the name of variable {n:?} is not UTF-8")))?;
        match value.into_string() {
            Ok(value) => Ok((name, Some(value))),
            // The value is not shown: it may be a secret.
            Err(_) => Err(
                Failure::usage(format!("the value of variable {name} is not UTF-8"))
                    .hint(format!("--unset {name}")),
            ),
        }
    })
    .collect()
}

/// Returns the caller's file mode mask.
pub(crate) fn umask() -> u32 {
    // It can only be read by setting it. The commands that ask run in one thread, so that nobody creates a
    // file in between.
    // SAFETY: the call takes a number and cannot fail.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

/// Returns the caller's resource limits by their names on the wire.
pub(crate) fn limits() -> BTreeMap<String, ResourceLimit> {
    let all = [
        ("as", libc::RLIMIT_AS),
        ("core", libc::RLIMIT_CORE),
        ("cpu", libc::RLIMIT_CPU),
        ("data", libc::RLIMIT_DATA),
        ("fsize", libc::RLIMIT_FSIZE),
        ("memlock", libc::RLIMIT_MEMLOCK),
        ("nofile", libc::RLIMIT_NOFILE),
        ("nproc", libc::RLIMIT_NPROC),
        ("stack", libc::RLIMIT_STACK),
    ];
    all.into_iter()
        .filter_map(|(name, resource)| {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: fills a plain struct that is alive for the call.
            let known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
            let finite = |n: libc::rlim_t| (n != libc::RLIM_INFINITY).then_some(n);
            known.then(|| {
                let limit = ResourceLimit {
                    soft: finite(limit.rlim_cur),
                    hard: finite(limit.rlim_max),
                };
                (name.to_owned(), limit)
            })
        })
        .collect()
}

/// Returns what stands on standard input, to its end.
pub(crate) fn input() -> Result<String, Failure> {
    std::io::read_to_string(std::io::stdin().lock())
        .map_err(|e| Failure::ours(format!("the input cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn an_empty_value_is_not_an_absent_one() {
        let vars = [("A".into(), OsString::new())];
        let env = environment_of(vars.into_iter()).unwrap();
        assert_eq!(env["A"], Some(String::new()));
    }

    #[test]
    fn a_value_that_is_no_text_is_named_and_not_shown() {
        let vars = [("KEY".into(), OsString::from_vec(b"secret\xff".to_vec()))];
        let failure = environment_of(vars.into_iter()).unwrap_err();
        assert_eq!(failure.what, "the value of variable KEY is not UTF-8");
        assert_eq!(failure.hint.as_deref(), Some("--unset KEY"));
        assert_eq!(failure.code, 2);
    }

    #[test]
    fn the_limits_are_those_of_this_process() {
        let limits = limits();
        assert_eq!(limits.len(), 9);
        assert!(limits["nofile"].soft.is_some());
    }
}
