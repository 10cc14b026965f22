//! Promise: every client of a user finds the same house, whatever its variables say.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ostler_tests::{House, Mount, in_empty_house, ostler};

/// The house in the ordinary place of this user, over which the test has put empty disks. Told to end when dropped.
struct OrdinaryPlace<'a> {
    house: &'a House,
}

impl OrdinaryPlace<'_> {
    fn ostler(&self, args: &[&str], variables: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(ostler());
        let done = command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(variables.iter().copied())
            .current_dir(self.house.file("."))
            .stdin(Stdio::null())
            .output();
        done.expect("ostler can be executed")
    }

    fn prints(&self, args: &[&str], variables: &[(&str, &Path)]) -> String {
        let output = self.ostler(args, variables);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?} {variables:?}: {err}");
        String::from_utf8(output.stdout).expect("it is text")
    }
}

impl Drop for OrdinaryPlace<'_> {
    fn drop(&mut self) {
        self.ostler(&["daemon", "stop"], &[]);
    }
}

/// 115: from a terminal, from `cron`, from `su`, from an agent that strips its environment.
#[test]
fn clients_with_other_runtime_variables_or_none_meet_in_one_house() {
    in_empty_house(async |house| {
        let (Some(_run), Some(_home)) = (
            Mount::disk(Path::new("/run"), 1 << 20),
            Mount::disk(Path::new("/root"), 1 << 20),
        ) else {
            return;
        };
        let runtime = PathBuf::from("/run/user/0");
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(&runtime).expect("it can be made");
        let (own, foreign) = (house.file("own"), house.file("foreign"));
        private.create(&own).expect("it can be made");
        private.create(&foreign).expect("it can be made");
        std::os::unix::fs::chown(&foreign, Some(65_534), None).expect("root may give away");
        let place = OrdinaryPlace { house };
        let id = place.prints(&["start", "--", "sleep", "200"], &[]);
        for variables in [
            vec![],
            vec![("XDG_RUNTIME_DIR", &*runtime)],
            vec![("XDG_RUNTIME_DIR", &*own), ("HOME", &*own)],
            vec![("XDG_RUNTIME_DIR", &*foreign), ("TMPDIR", &*foreign)],
            vec![("XDG_RUNTIME_DIR", Path::new(""))],
        ] {
            assert_eq!(place.prints(&["ls", "-q"], &variables), id);
        }
        assert!(runtime.join("ostler/ostler.sock").exists());
        let status = place.prints(&["daemon", "status", "--json"], &[]);
        assert!(status.contains("\"generation\":1"), "{status}");
    });
}
