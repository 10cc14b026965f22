//! Arguments of a call, checked: an unknown one or one of the wrong type is told and nothing is done. Pure.

use std::path::{Path, PathBuf};

use ostler_proto::id;
use ostler_proto::limits;
use serde_json::{Map, Value};

use super::condition::Until;
use super::fault::Fault;
use super::words;

/// The arguments of one call.
#[derive(Debug)]
pub(crate) struct Arguments {
    map: Map<String, Value>,
}

impl Arguments {
    /// Takes those that a tool has. Unless it is `lenient`, another one is refused with the names of those that it has.
    ///
    /// # Errors
    /// There is another one.
    pub(crate) fn of(
        map: Option<Map<String, Value>>,
        valid: &[&str],
        lenient: bool,
    ) -> Result<Self, Fault> {
        let mut map = map.unwrap_or_default();
        map.retain(|_, value| !value.is_null());
        if let Some(name) = map.keys().find(|name| !valid.contains(&name.as_str()))
            && !lenient
        {
            let name = words::cut(name, 40);
            let valid = valid.join(", ");
            let valid = if valid.is_empty() { "none" } else { &valid };
            return Err(Fault::argument(format!(
                "no argument {name:?}: use {valid}. Nothing was started."
            )));
        }
        Ok(Self { map })
    }

    /// A text.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        match self.map.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "must be a text")),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// It is not there, or no text.
    pub(crate) fn needed(&self, name: &str) -> Result<&str, Fault> {
        self.text(name)?.ok_or_else(|| wrong(name, "is missing"))
    }

    /// Yes or no.
    ///
    /// # Errors
    /// It is neither.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        match self.map.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(Value::String(text)) if text == "true" => Ok(Some(true)),
            Some(Value::String(text)) if text == "false" => Ok(Some(false)),
            Some(_) => Err(wrong(name, "must be true or false")),
        }
    }

    /// A number that is not negative.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, Fault> {
        let number = match self.map.get(name) {
            None => return Ok(None),
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        // One that is too large for its type is infinite: its bound is told, or it is cut to that, as with any other.
        match number.filter(|n: &f64| *n >= 0.0) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, "must be a number of 0 or more")),
        }
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn whole(&self, name: &str) -> Result<Option<u64>, Fault> {
        let most = limits::mcp::WHOLE;
        match self.number(name)? {
            None => Ok(None),
            #[expect(
                clippy::cast_precision_loss,
                reason = "it is the greatest that is exact"
            )]
            Some(n) if n > most as f64 => Err(wrong(name, &format!("must be at most {most}"))),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be whole, not negative and small enough"
            )]
            Some(n) if n.fract() == 0.0 => Ok(Some(n as u64)),
            Some(_) => Err(wrong(name, "must be a whole number")),
        }
    }

    /// A time in ms, within the bound of the front end: more is cut to it.
    ///
    /// # Errors
    /// It is no number.
    pub(crate) fn wait(&self, name: &str, default: u64, most: u64) -> Result<u64, Fault> {
        let Some(seconds) = self.number(name)? else {
            return Ok(default.min(most));
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative; what is too large is cut to the bound"
        )]
        let ms = (seconds * 1_000.0).min(1e15) as u64;
        Ok(ms.min(most))
    }

    /// Tells whether it is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// One or several ids, by comma or blank, or as a list.
    ///
    /// # Errors
    /// There is none, or one that cannot be one, or too many.
    pub(crate) fn ids(&self, name: &str) -> Result<Vec<String>, Fault> {
        let mut ids: Vec<String> = match self.map.get(name) {
            None => return Ok(Vec::new()),
            Some(Value::String(text)) => split(text),
            Some(Value::Array(list)) => list
                .iter()
                .map(|v| v.as_str().map(split))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| wrong(name, "must be ids: t1,a1"))?
                .concat(),
            Some(_) => return Err(wrong(name, "must be ids: t1,a1")),
        };
        // An empty text is that of a client that fills in every argument; this one was to say something.
        let says = |v: &Value| v.as_str().is_some_and(|text| !text.trim().is_empty());
        let given = self.map.get(name);
        let list = given.and_then(Value::as_array).into_iter().flatten();
        if ids.is_empty() && given.into_iter().chain(list).any(says) {
            return Err(wrong(name, "must be ids: t1,a1"));
        }
        let mut told = std::collections::HashSet::new();
        ids.retain(|id| told.insert(id.clone()));
        if ids.len() > limits::mcp::IDS {
            return Err(wrong(
                name,
                &format!("has {} jobs, at most {}", ids.len(), limits::mcp::IDS),
            ));
        }
        Ok(ids)
    }

    /// A folder: where the agent is, or behind that.
    ///
    /// # Errors
    /// It is no text.
    pub(crate) fn folder(&self, name: &str, here: &Path) -> Result<String, Fault> {
        let asked = self.text(name)?.unwrap_or_default();
        let folder: PathBuf = here.join(asked).components().collect();
        match folder.to_str() {
            Some(folder) => Ok(folder.to_owned()),
            None => Err(wrong(name, "is not UTF-8")),
        }
    }

    /// What a call waits for.
    ///
    /// # Errors
    /// It is no condition.
    pub(crate) fn until(&self) -> Result<Option<Until>, Fault> {
        let wrong = |why| Fault::argument(format!("{why}. Nothing was started."));
        self.text("until")?
            .map(|text| Until::parse(text).map_err(wrong))
            .transpose()
    }
}

fn split(text: &str) -> Vec<String> {
    text.split([',', ' '])
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Tells whether a text may be the id of a job here. Names and `SESSION/t1` are not.
pub(crate) fn is_id(text: &str) -> bool {
    id::is_short_id(text) || id::is_process_id(text) && text.len() > id::PROCESS_PREFIX.len()
}

fn wrong(name: &str, why: &str) -> Fault {
    Fault::argument(format!("{name} {why}. Nothing was started."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(json: Value) -> Arguments {
        let map = json.as_object().cloned();
        Arguments::of(map, &["id", "wait_s", "tty", "cwd"], false).unwrap()
    }

    #[test]
    fn an_unknown_argument_is_refused_with_those_that_there_are() {
        let map = json!({"cmd": "ls"}).as_object().cloned();
        let fault = Arguments::of(map.clone(), &["command", "cwd"], false).unwrap_err();
        assert_eq!(
            fault.text(),
            "bad_argument: no argument \"cmd\": use command, cwd. Nothing was started."
        );
        assert!(Arguments::of(map, &["command"], true).is_ok());
    }

    #[test]
    fn ids_come_in_every_form_and_each_once() {
        for json in [
            json!({"id": "t1,a1"}),
            json!({"id": "t1, a1 t1"}),
            json!({"id": ["t1", "a1"]}),
        ] {
            assert_eq!(of(json).ids("id").unwrap(), ["t1", "a1"]);
        }
        let many: Vec<String> = (0..17).map(|n| format!("t{n}")).collect();
        assert!(of(json!({"id": many.join(",")})).ids("id").is_err());
        assert!(of(json!({"id": 1})).ids("id").is_err());
        for none in [json!(","), json!(" , "), json!([","]), json!(["", ", ,"])] {
            let fault = of(json!({ "id": none })).ids("id").unwrap_err();
            assert!(fault.text().contains("id must be ids: t1,a1"), "{none}");
        }
        for none in [json!(""), json!(" "), json!([]), json!([""])] {
            assert_eq!(of(json!({ "id": none })).ids("id").unwrap(), [""; 0]);
        }
        assert!(is_id("t1") && is_id("proc_01JX") && !is_id("web") && !is_id("x/t1"));
        assert!(!is_id("proc_"));
    }

    #[test]
    fn a_whole_number_that_is_too_large_is_told_its_bound() {
        let whole = |json| of(json!({ "wait_s": json })).whole("wait_s");
        let most = 9_007_199_254_740_991_u64;
        for taken in [json!(0), json!(7.0), json!(most), json!(most.to_string())] {
            assert!(whole(taken.clone()).is_ok(), "{taken}");
        }
        assert_eq!(whole(json!(most)).unwrap(), Some(most));
        for large in [
            json!(1_000_000_000_000_000_000_u64),
            json!(1e30),
            json!("1e400"),
        ] {
            assert_eq!(
                whole(large.clone()).unwrap_err().text(),
                "bad_argument: wait_s must be at most 9007199254740991. Nothing was started.",
                "{large}"
            );
        }
        let half = whole(json!(0.5)).unwrap_err().text();
        assert!(half.contains("must be a whole number"), "{half}");
        for other in [json!(-1), json!("NaN"), json!("x")] {
            let told = whole(other).unwrap_err().text();
            assert!(told.contains("must be a number of 0 or more"), "{told}");
        }
        // A time is cut to its bound, however large it is.
        let wait = of(json!({"wait_s": "1e400"})).wait("wait_s", 1, 45_000);
        assert_eq!(wait.unwrap(), 45_000);
    }

    #[test]
    fn a_time_above_the_bound_is_cut_to_it() {
        assert_eq!(
            of(json!({"wait_s": 900}))
                .wait("wait_s", 1, 45_000)
                .unwrap(),
            45_000
        );
        assert_eq!(
            of(json!({"wait_s": 0})).wait("wait_s", 1, 45_000).unwrap(),
            0
        );
        assert_eq!(
            of(json!({"wait_s": 0.5}))
                .wait("wait_s", 1, 45_000)
                .unwrap(),
            500
        );
        assert_eq!(
            of(json!({})).wait("wait_s", 30_000, 45_000).unwrap(),
            30_000
        );
        assert!(of(json!({"wait_s": -1})).wait("wait_s", 1, 45_000).is_err());
    }

    #[test]
    fn a_folder_stands_behind_that_of_the_agent() {
        let here = Path::new("/srv/app");
        assert_eq!(of(json!({})).folder("cwd", here).unwrap(), "/srv/app");
        assert_eq!(
            of(json!({"cwd": "src/"})).folder("cwd", here).unwrap(),
            "/srv/app/src"
        );
        assert_eq!(
            of(json!({"cwd": "/etc"})).folder("cwd", here).unwrap(),
            "/etc"
        );
    }
}
