//! What a call asks of the sandbox, and where it may work. Pure but for a look at the real path of a folder.

use std::path::Path;

use super::arguments::Arguments;
use super::fault::Fault;
use super::words;

/// Refuses a wider sandbox where there is none that could be widened, and a request that has half of what it needs.
///
/// # Errors
/// It is asked for.
pub(crate) fn check(args: &Arguments) -> Result<(), Fault> {
    let asked = args.text("sandbox_permissions")?;
    let why = args
        .text("justification")?
        .filter(|why| !why.trim().is_empty());
    match (asked, why) {
        (None, None) => Ok(()),
        (Some(mode), Some(_)) if matches!(mode, "workspace-write" | "danger-full-access") => {
            Err(Fault::argument(format!(
                "{mode} is not wider than what holds here: no sandbox confines commands. Leave \
                 sandbox_permissions and justification out. Nothing was started."
            )))
        }
        (Some(mode), Some(_)) => Err(Fault::argument(format!(
            "sandbox_permissions {:?}: use workspace-write or danger-full-access. Nothing was started.",
            words::cut(mode, 40)
        ))),
        _ => Err(Fault::argument(
            "sandbox_permissions and justification go together. Nothing was started.",
        )),
    }
}

/// The folder of a call, which lies in the workspace by its real path.
///
/// # Errors
/// It lies elsewhere.
pub(crate) fn folder(args: &Arguments, name: &str, here: &Path) -> Result<String, Fault> {
    let folder = args.folder(name, here)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if real(Path::new(&folder)).starts_with(real(here)) {
        return Ok(folder);
    }
    Err(Fault::new(
        "cwd_refused",
        format!(
            "{} is outside the project. Nothing was started.",
            words::one_line(&folder)
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(json: serde_json::Value) -> Arguments {
        let valid = ["sandbox_permissions", "justification", "workdir"];
        Arguments::of(json.as_object().cloned(), &valid, false).unwrap()
    }

    #[test]
    fn both_or_neither_and_never_what_is_not_wider() {
        assert_eq!(check(&of(json!({}))), Ok(()));
        for (json, word) in [
            (
                json!({"sandbox_permissions": "workspace-write"}),
                "go together",
            ),
            (json!({"justification": "x"}), "go together"),
            (
                json!({"sandbox_permissions": "workspace-write", "justification": " "}),
                "go together",
            ),
            (
                json!({"sandbox_permissions": "danger-full-access", "justification": "x"}),
                "not wider",
            ),
            (
                json!({"sandbox_permissions": "all", "justification": "x"}),
                "use workspace-write",
            ),
        ] {
            let fault = check(&of(json)).unwrap_err();
            assert!(fault.words.contains(word), "{fault:?}");
        }
    }

    #[test]
    fn a_folder_is_judged_by_its_real_path() {
        let base = tempfile::tempdir().unwrap();
        let here = base.path().join("app");
        std::fs::create_dir_all(here.join("src")).unwrap();
        std::os::unix::fs::symlink("/", here.join("out")).unwrap();
        let folder = |dir: &str| folder(&of(json!({"workdir": dir})), "workdir", &here);
        assert!(folder("src").is_ok() && folder("").is_ok());
        for bad in ["/etc", "..", "out", "out/etc"] {
            let fault = folder(bad).unwrap_err();
            assert!(
                fault
                    .text()
                    .ends_with("is outside the project. Nothing was started."),
                "{fault:?}"
            );
        }
    }
}
