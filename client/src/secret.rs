//! Which variables look like secrets: front ends withhold them from the jobs of agents and editors.

/// Part of a name that makes it look like one, in capitals.
const WORDS: [&str; 4] = ["KEY", "PASSWORD", "SECRET", "TOKEN"];

/// A variable of this name is withheld unless somebody hands it on.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

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
