//! The manual pages in `contrib/man`, one a command, made from the same definitions as `--help`.

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::super::Cli;

    /// Returns the name and the text of each page.
    fn pages() -> Vec<(String, String)> {
        let mut command = Cli::command();
        command.build();
        let mut pages = Vec::new();
        add(&command, &mut pages);
        pages
    }

    fn add(command: &Command, pages: &mut Vec<(String, String)>) {
        let man = clap_mangen::Man::new(command.clone())
            // A page that changes every day would never be equal to the committed one.
            .date(" ")
            .source(format!("ostler {}", ostler_proto::VERSION))
            .manual("ostler");
        let mut text = Vec::new();
        man.render(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        // Examples have a section of their own, in which lines stay lines.
        let text = text.replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n.nf\n");
        pages.push((man.get_filename(), text));
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        for sub in shown.filter(|c| c.get_name() != "help") {
            add(sub, pages);
        }
    }

    /// The committed pages are the generated ones. `UPDATE_MAN=1` writes them.
    #[test]
    fn the_committed_pages_are_the_generated_ones() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/man");
        let pages = pages();
        if std::env::var_os("UPDATE_MAN").is_some() {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder).unwrap();
            for (name, text) in &pages {
                std::fs::write(format!("{folder}/{name}"), text).unwrap();
            }
        }
        for (name, text) in &pages {
            let committed = std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
            assert!(
                *text == committed,
                "{name} is old: run the tests of ostler once with UPDATE_MAN=1"
            );
        }
        let there = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(there, pages.len(), "a page of a command that is gone");
    }

    #[test]
    fn each_command_has_a_page_with_its_examples() {
        let pages = pages();
        for name in [
            "ostler.1",
            "ostler-start.1",
            "ostler-session-open.1",
            "ostler-daemon-stop.1",
        ] {
            let (_, text) = pages.iter().find(|(page, _)| page == name).unwrap();
            assert!(text.contains(".SH EXAMPLES\n.nf\n  ostler "), "{name}");
            assert!(text.contains(".SH OPTIONS"), "{name}");
        }
        assert!(
            pages
                .iter()
                .all(|(name, _)| !name.contains("keep") && !name.contains("supervise"))
        );
    }
}
