//! What a reviewer would say again and again, said once by a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The code of a file without its unit tests, which may look anywhere.
fn product_code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .map(|l| format!("{l}\n"))
        .collect()
}

/// Top-level modules of a crate and the modules that each of them names.
fn module_graph(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let named = Regex::new(r"crate::(?:\{)?([a-z_]+)").unwrap();
    let grouped = Regex::new(r"(?s)crate::\{(.*?)\};").unwrap();
    let first_of_group = Regex::new(r"(?m)^\s{4}([a-z_]+)(?:::|,)").unwrap();
    let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
    for path in sources(source) {
        let inside = path.strip_prefix(source).unwrap();
        let first = inside.components().next().unwrap();
        let module = first
            .as_os_str()
            .to_string_lossy()
            .trim_end_matches(".rs")
            .to_owned();
        if matches!(module.as_str(), "lib" | "main" | "bin") {
            continue;
        }
        let code = product_code(&path);
        let uses = graph.entry(module.clone()).or_default();
        uses.extend(named.captures_iter(&code).map(|c| c[1].to_owned()));
        for group in grouped.captures_iter(&code) {
            uses.extend(
                first_of_group
                    .captures_iter(&group[1])
                    .map(|c| c[1].to_owned()),
            );
        }
        uses.remove(&module);
    }
    let known: BTreeSet<String> = graph.keys().cloned().collect();
    for uses in graph.values_mut() {
        uses.retain(|u| known.contains(u));
    }
    graph
}

fn find_cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        at: &str,
        graph: &BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|m| m == at) {
            return Some([&way[begin..], &[at.to_owned()]].concat());
        }
        if done.contains(at) {
            return None;
        }
        way.push(at.to_owned());
        for next in &graph[at] {
            if let Some(cycle) = visit(next, graph, way, done) {
                return Some(cycle);
            }
        }
        way.pop();
        done.insert(at.to_owned());
        None
    }
    let mut done = BTreeSet::new();
    graph
        .keys()
        .find_map(|m| visit(m, graph, &mut Vec::new(), &mut done))
}

#[test]
fn modules_have_no_cycle() {
    for folder in ["proto/src", "supervisor/src", "client/src"] {
        let graph = module_graph(&root().join(folder));
        assert!(graph.len() > 3, "{folder}: the modules were not found");
        assert_eq!(find_cycle(&graph), None, "{folder}");
    }
}

#[test]
fn the_search_for_cycles_finds_one() {
    let edge = |to: &[&str]| to.iter().map(|t| (*t).to_owned()).collect::<BTreeSet<_>>();
    let graph = BTreeMap::from([
        ("a".to_owned(), edge(&["b"])),
        ("b".to_owned(), edge(&["c"])),
        ("c".to_owned(), edge(&["b"])),
    ]);
    assert_eq!(
        find_cycle(&graph),
        Some(vec!["b".into(), "c".into(), "b".into()])
    );
}

#[test]
fn every_method_is_in_the_client_and_in_a_test() {
    let text = |folder: &str| -> String {
        sources(&root().join(folder))
            .iter()
            .map(|p| fs::read_to_string(p).unwrap())
            .collect()
    };
    let (client, tests) = (text("client/src"), text("tests/tests") + &text("tests/src"));
    for entry in ostler_proto::methods::TABLE {
        let family: String = entry
            .name
            .split(['/', '_'])
            .map(|w| w[..1].to_uppercase() + &w[1..])
            .collect::<String>();
        assert!(
            client.contains(&family),
            "no client code uses {} ({family})",
            entry.name
        );
        let tested = tests.contains(&family) || tests.contains(entry.name);
        assert!(tested, "no test uses {}", entry.name);
    }
}

#[test]
fn no_test_sleeps() {
    let sleeps = Regex::new(r"thread::sleep|time::sleep\b|\bsleep_ms").unwrap();
    let mut found = Vec::new();
    for folder in ["tests/tests", "supervisor/tests"] {
        for path in sources(&root().join(folder)) {
            if path.ends_with("tidy.rs") {
                continue;
            }
            for (n, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
                // A pause between two looks at something that no event tells is bounded by a deadline and says so.
                if sleeps.is_match(line) && !line.contains("// looks again") {
                    found.push(format!("{}:{}", path.display(), n + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "sleeps in tests:\n{}", found.join("\n"));
}

#[test]
fn product_code_does_not_unwrap() {
    let mut found = Vec::new();
    for folder in ["proto/src", "supervisor/src", "client/src"] {
        for path in sources(&root().join(folder)) {
            for (n, line) in product_code(&path).lines().enumerate() {
                if line.contains(".unwrap()") {
                    found.push(format!("{}: line {} of its code", path.display(), n + 1));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "unwrap in product code:\n{}",
        found.join("\n")
    );
}

#[test]
fn commands_in_the_readme_exist() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains("cargo run --release -- run -- echo hello"));
    assert!(readme.contains("\ntests/run\n"));
    let binary = ostler_tests::ostler();
    let mut seen = 0;
    for line in readme.lines().filter_map(|l| l.strip_prefix("$ ostler ")) {
        let own = line.split(" -- ").next().unwrap_or_default();
        let own = own.split('#').next().unwrap_or_default();
        let words: Vec<&str> = own.split_whitespace().collect();
        let help = std::process::Command::new(binary)
            .args([words[0], "--help"])
            .output()
            .unwrap();
        assert!(
            help.status.success(),
            "README: ostler {} is no command",
            words[0]
        );
        let help = String::from_utf8(help.stdout).unwrap();
        for flag in words.iter().filter(|w| w.starts_with('-')) {
            assert!(
                help.contains(flag),
                "README: ostler {} knows no {flag}",
                words[0]
            );
        }
        seen += 1;
    }
    assert!(seen >= 5, "the commands of the README were not found");
}
