//! Which variables look like secrets: front ends withhold them from the jobs of agents and editors.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Part of a name that makes it look like one, in capitals.
const WORDS: [&str; 4] = ["KEY", "PASSWORD", "SECRET", "TOKEN"];

/// A variable of this name is withheld unless somebody hands it on.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// What jobs inherit of these variables. One that is withheld is there without its value, so that the job's record names
/// it. What is no text cannot be said to the supervisor, and nobody can miss it who sees text only.
pub(crate) fn inherited(
    vars: impl Iterator<Item = (OsString, OsString)>,
    pass: &[String],
) -> BTreeMap<String, Option<String>> {
    let text = vars.filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let given = pass.contains(&name) || !is_secret(&name);
        Some((name, given.then_some(value)))
    });
    text.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withheld_is_named_without_its_value() {
        let vars = [("PATH", "/bin"), ("A_TOKEN", "x"), ("api_key", "y")];
        let vars = vars.map(|(n, v)| (n.into(), v.into()));
        let inherited = inherited(vars.into_iter(), &["api_key".into()]);
        let expected = [
            ("A_TOKEN", None),
            ("PATH", Some("/bin")),
            ("api_key", Some("y")),
        ];
        let expected = expected.map(|(n, v)| (n.to_owned(), v.map(str::to_owned)));
        assert_eq!(inherited, expected.into());
    }

    #[test]
    fn names_that_look_like_secrets_are_withheld() {
        for secret in [
            "GITHUB_TOKEN",
            "api_key",
            "DB_PASSWORD",
            "AWS_SECRET_ACCESS",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
        for plain in ["PATH", "HOME", "NODE_ENV", "LANG"] {
            assert!(!is_secret(plain), "{plain}");
        }
    }
}
