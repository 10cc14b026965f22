//! JSON Schema of the whole protocol, from the same types that speak it.

use serde_json::{Value, json};

use crate::{PROTOCOL, methods, refusal};

/// Returns one document: every method with parameters and result, every refusal, the value of `$/progress`.
pub fn document() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    let methods: serde_json::Map<String, Value> = methods::TABLE
        .iter()
        .map(|entry| {
            let (params, result) = (entry.schema)(&mut generator);
            (
                entry.name.to_owned(),
                json!({ "description": entry.doc, "params": params, "result": result }),
            )
        })
        .collect();
    let progress = generator.subschema_for::<methods::Progress>();
    let refusals: Vec<Value> = refusal::RefusalKind::ALL
        .iter()
        .map(|kind| json!({ "code": kind.code(), "kind": kind.word() }))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ostler protocol",
        "version": PROTOCOL,
        "methods": methods,
        "progress": progress,
        "refusals": refusals,
        "$defs": generator.take_definitions(true),
    })
}

#[cfg(test)]
mod tests {
    /// The committed schema is the generated one. `UPDATE_SCHEMA=1` writes it.
    #[test]
    fn the_committed_schema_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema.json");
        let made = serde_json::to_string_pretty(&super::document()).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            made == committed,
            "schema.json is old: run the tests of ostler-proto once with UPDATE_SCHEMA=1"
        );
    }

    #[test]
    fn every_method_and_refusal_is_in_the_document() {
        let text = include_str!("../PROTOCOL.md");
        for entry in crate::methods::TABLE {
            assert!(
                text.contains(&format!("| `{}` |", entry.name)),
                "PROTOCOL.md says nothing of {}",
                entry.name
            );
        }
        let named = text
            .lines()
            .filter(|l| l.starts_with("| `") && l.contains('/'))
            .count();
        assert_eq!(
            named,
            crate::methods::TABLE.len(),
            "PROTOCOL.md has methods that do not exist"
        );
        for kind in crate::refusal::RefusalKind::ALL {
            let row = format!("| {} | {} |", kind.code(), kind.word());
            assert!(text.contains(&row), "PROTOCOL.md lacks {row}");
        }
    }
}
