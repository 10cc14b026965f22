//! Parameters of a request, read so that a refusal names the field and speaks of JSON, not of our types.

use ostler_proto::refusal::Refusal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Reads parameters; absent, null and `{}` are alike.
///
/// # Errors
/// `bad_argument` with the field.
pub(crate) fn read<P: DeserializeOwned>(params: Value) -> Result<P, Refusal> {
    let params = if params.is_null() { json!({}) } else { params };
    if !params.is_object() {
        // By position would mean the order in which our types list their fields.
        return Err(Refusal::bad("params", "must be an object"));
    }
    serde_path_to_error::deserialize(params).map_err(|error| {
        let path = error.path().to_string();
        refusal(&path, &error.inner().to_string())
    })
}

/// serde tells a missing and an unknown field by its words alone, and at the place of the object around it.
fn refusal(path: &str, words: &str) -> Refusal {
    let outer = if path == "." { "" } else { path };
    if let Some(name) = quoted(words, "missing field ") {
        return Refusal::bad(&inside(outer, name), "is missing");
    }
    if let Some(name) = quoted(words, "unknown field ") {
        // serde_path_to_error names the unknown key as the last part of the path already.
        let outer = outer.strip_suffix(name).unwrap_or(outer);
        let known = words.split_once("expected ").map(|(_, known)| known);
        let refusal = Refusal::bad(
            &inside(outer.trim_end_matches('.'), name),
            "is not known here",
        );
        return match known {
            Some(known) => refusal.hint(format!("known: {}", known.trim_start_matches("one of "))),
            None => refusal,
        };
    }
    let field = if outer.is_empty() { "params" } else { outer };
    Refusal::bad(field, format!("is wrong: {}", plain(words)))
}

fn quoted<'a>(words: &'a str, before: &str) -> Option<&'a str> {
    words
        .strip_prefix(before)?
        .strip_prefix('`')?
        .split('`')
        .next()
}

fn inside(outer: &str, name: &str) -> String {
    if outer.is_empty() {
        name.into()
    } else {
        format!("{outer}.{name}")
    }
}

/// What serde calls a type, in words of JSON.
fn plain(words: &str) -> String {
    if let Some((_, name)) = words.split_once("any variant of untagged enum ") {
        return format!(
            "none of the forms that are allowed for {}",
            name.to_lowercase()
        );
    }
    let Some((got, expected)) = words.split_once(", expected ") else {
        return words.into();
    };
    let expected = match expected {
        "u8" => whole(0_u8, u8::MAX),
        "u16" => whole(0_u16, u16::MAX),
        "u32" => whole(0_u32, u32::MAX),
        "u64" | "usize" => whole(0_u64, u64::MAX),
        "i8" => whole(i8::MIN, i8::MAX),
        "i16" => whole(i16::MIN, i16::MAX),
        "i32" => whole(i32::MIN, i32::MAX),
        "i64" => whole(i64::MIN, i64::MAX),
        "f32" | "f64" => "a number".into(),
        e if e.starts_with("struct ") => "an object".into(),
        e if e.starts_with("tuple ") => "a list".into(),
        e => of_json(e),
    };
    format!("{}, expected {expected}", of_json(got))
}

/// With its bounds: one that is too large is a whole number as well.
fn whole<T: std::fmt::Display>(least: T, most: T) -> String {
    format!("a whole number from {least} to {most}")
}

fn of_json(words: &str) -> String {
    words
        .replace("integer", "number")
        .replace("floating point", "number")
        .replace("a sequence", "a list")
        .replace("sequence", "list")
        .replace("a map", "an object")
        .replace("map", "object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ostler_proto::methods::{Progress, Read, Run, Start, Target};

    fn refused<P: DeserializeOwned>(params: Value) -> (String, Refusal) {
        let refusal = read::<P>(params).err().unwrap();
        (refusal.data["field"].as_str().unwrap().into(), refusal)
    }

    #[test]
    fn a_missing_field_is_named_and_not_its_parent() {
        let (field, refusal) = refused::<Target>(json!({}));
        assert_eq!(
            (field.as_str(), refusal.message.as_str()),
            ("id", "`id` is missing")
        );
        let (field, _) = refused::<Progress>(json!({ "page": { "from": 1 } }));
        assert_eq!(field, "page.next");
    }

    #[test]
    fn an_unknown_field_is_named_with_those_that_are_known() {
        let (field, refusal) = refused::<Target>(json!({ "id": "t1", "idd": 1 }));
        assert_eq!(field, "idd");
        assert!(refusal.hint.unwrap().contains("`id`"));
        let (field, _) = refused::<Run>(json!({ "start": { "args": ["x"], "agrs": [] } }));
        assert_eq!(field, "start.agrs");
    }

    #[test]
    fn a_number_that_is_too_large_is_told_the_greatest() {
        let open = json!({ "commands": 5_000_000_000_u64 });
        let told = refused::<ostler_proto::methods::OpenSession>(open)
            .1
            .message;
        assert!(
            told.ends_with("a whole number from 0 to 4294967295"),
            "{told}"
        );
        let read: Value =
            serde_json::from_str(r#"{"id":"t1","since":100000000000000000000}"#).unwrap();
        let told = refused::<Read>(read).1.message;
        assert!(
            told.ends_with("a whole number from 0 to 18446744073709551615"),
            "{told}"
        );
    }

    #[test]
    fn no_type_of_ours_is_named() {
        let cases: [(&str, Refusal); 5] = [
            (
                "since",
                refused::<Read>(json!({ "id": "t1", "since": -5 })).1,
            ),
            ("max", refused::<Read>(json!({ "id": "t1", "max": "x" })).1),
            ("params", refused::<Read>(json!([1])).1),
            (
                "stdin",
                refused::<Start>(json!({ "args": ["x"], "stdin": 7 })).1,
            ),
            (
                "env",
                refused::<Start>(json!({ "args": ["x"], "env": [] })).1,
            ),
        ];
        for (field, refusal) in cases {
            assert_eq!(refusal.data["field"], field, "{}", refusal.message);
            for rust in [
                "u64", "usize", "struct", "enum", "map", "sequence", "variant",
            ] {
                assert!(!refusal.message.contains(rust), "{}", refusal.message);
            }
        }
    }
}
