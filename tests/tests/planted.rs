//! Promise: whatever is planted in the folders of the house, nothing outside of them is written or deleted, and no job
//! suffers from it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ostler_proto::job::{JobResult, Outcome};
use ostler_proto::methods::{CloseSession, JobRelease, OpenSession, SessionClose, Target};
use ostler_tests::house::{House, files_below, in_empty_house, in_house};
use ostler_tests::{Desk, desk::script};

/// More than a ring holds.
const MUCH: u64 = 300_000;

/// A folder of somebody else's, and its files.
struct Outside {
    folder: PathBuf,
    files: Vec<PathBuf>,
}

impl Outside {
    fn new(house: &House) -> Self {
        let folder = house.file("outside");
        fs::create_dir(&folder).expect("a folder can be made");
        let mut outside = Self {
            folder,
            files: Vec::new(),
        };
        outside.plant_file("precious");
        outside
    }

    fn file(&self) -> PathBuf {
        self.files[0].clone()
    }

    fn plant_file(&mut self, name: &str) {
        let file = self.folder.join(name);
        fs::write(&file, "precious").expect("a file can be made");
        self.files.push(file);
    }

    /// All that was there is, as it was, and nothing else.
    fn assert_untouched(&self, when: &str) {
        for file in &self.files {
            let text = fs::read_to_string(file).unwrap_or_default();
            assert_eq!(text, "precious", "{}: {when}", file.display());
        }
        let there = files_below(&self.folder);
        assert_eq!(there.len(), self.files.len(), "{there:?}: {when}");
        let entries = fs::read_dir(&self.folder).unwrap().count();
        assert!(entries <= there.len(), "a folder is new {when}");
    }
}

async fn print_much(desk: &Desk) -> JobResult {
    let result = desk.run(script(&format!("out {MUCH} , exit 0"))).await;
    assert_eq!(result.row.outcome, Some(Outcome::Exited));
    assert_eq!(result.row.output.end, MUCH);
    result
}

/// It ran as if nothing were; what left its ring is lost, and that is told.
async fn assert_kept_in_memory_alone(desk: &Desk) -> JobResult {
    let result = print_much(desk).await;
    let output = &result.row.output;
    assert!(output.spill.is_none(), "{output:?}");
    assert!(output.spill_stopped.is_some(), "{output:?}");
    assert!(output.lost > 0, "{output:?}");
    result
}

async fn release(desk: &Desk, id: &str) {
    let target = Target {
        session: None,
        id: id.into(),
    };
    desk.must::<JobRelease>(target).await;
}

fn swap_for_link(place: &Path, aside: &Path, to: &Path) {
    fs::rename(place, aside).expect("it is there");
    symlink(to, place).expect("a link can be made");
}

/// A start cleared what an earlier house had left, and went through the link: a whole folder of the user's was gone.
#[test]
fn a_start_does_not_clear_what_a_link_in_place_of_the_artifacts_points_to() {
    in_empty_house(async |house| {
        let mut outside = Outside::new(house);
        fs::create_dir(outside.folder.join("deep")).unwrap();
        outside.plant_file("deep/er");
        symlink(&outside.folder, house.folders().artifacts()).unwrap();
        house.start();
        outside.assert_untouched("after a start");
        // The house has a folder of its own again.
        let desk = house.desk();
        let result = print_much(&desk).await;
        assert!(result.row.output.spill.is_some());
        desk.assert_pattern(&result.row.id, MUCH).await;
        outside.assert_untouched("after a spill");
        house.close();
        outside.assert_untouched("after the end");
    });
}

/// B17, F11: planted while the house stands, before anything is spilled.
#[test]
fn a_link_in_place_of_the_artifacts_is_not_written_through() {
    in_house(async |house| {
        let outside = Outside::new(house);
        symlink(&outside.folder, house.folders().artifacts()).unwrap();
        let desk = house.desk();
        let result = assert_kept_in_memory_alone(&desk).await;
        outside.assert_untouched("after a spill");
        release(&desk, &result.row.id).await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        outside.assert_untouched("after a close");
        house.close();
        outside.assert_untouched("after the end");
    });
}

/// B17, F11: the folder of a session, with a file in the other one that has the very name of a spill.
#[test]
fn a_link_in_place_of_a_sessions_folder_is_not_written_or_deleted_through() {
    in_house(async |house| {
        let mut outside = Outside::new(house);
        let desk = house.desk();
        let first = print_much(&desk).await;
        let spill = PathBuf::from(first.row.output.spill.expect("it left the ring"));
        let folder = spill.parent().unwrap();
        for kind in ["log", "runs"] {
            outside.plant_file(&format!("{}.{kind}", first.row.process_id));
        }
        swap_for_link(folder, &house.file("aside"), &outside.folder);
        assert_kept_in_memory_alone(&desk).await;
        outside.assert_untouched("after a spill");
        release(&desk, &first.row.id).await;
        outside.assert_untouched("after a release");
        house.kill_supervisor().await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        outside.assert_untouched("after a close");
        assert!(files_below(&house.folders().artifacts()).is_empty());
    });
}

/// 134: the file of a spill. What stood in it is lost, and nothing of the other file is shown in its place.
#[test]
fn a_link_in_place_of_a_spill_is_not_read_written_or_deleted_through() {
    in_house(async |house| {
        let outside = Outside::new(house);
        let desk = house.desk();
        let first = print_much(&desk).await;
        let spill = PathBuf::from(first.row.output.spill.expect("it left the ring"));
        swap_for_link(&spill, &house.file("aside"), &outside.file());
        // A new supervisor has no file open.
        house.kill_supervisor().await;
        let page = desk.read(&first.row.process_id, 0).await;
        assert!(!page.text.unwrap_or_default().contains("precious"));
        outside.assert_untouched("after a read");
        release(&desk, &first.row.process_id).await;
        outside.assert_untouched("after a release");
        assert!(spill.symlink_metadata().is_err(), "the link went");
    });
}

/// The log, the key and the locks.
#[test]
fn links_in_place_of_the_files_of_a_house_are_not_written_through() {
    in_empty_house(async |house| {
        let mut outside = Outside::new(house);
        let folders = house.folders();
        let places = [folders.log(), folders.owner_key()];
        for (i, place) in places.iter().enumerate() {
            outside.plant_file(&format!("planted-{i}"));
            symlink(outside.folder.join(format!("planted-{i}")), place).unwrap();
        }
        house.start();
        assert_eq!(
            house.desk().run(script("exit 0")).await.row.exit_code,
            Some(0)
        );
        outside.assert_untouched("in a living house");
        for place in &places {
            let meta = place
                .symlink_metadata()
                .expect("the house has made its own");
            assert!(meta.is_file(), "{}", place.display());
        }
        house.close();
        outside.assert_untouched("after the end");
        // A lock that is a link would be held somewhere else: no house begins on it.
        for place in [folders.house_lock(), folders.start_lock()] {
            let _ = fs::remove_file(&place);
        }
        symlink(outside.file(), folders.house_lock()).unwrap();
        let said = house.try_start();
        assert!(said.starts_with("failed: "), "{said}");
        house.reap();
        outside.assert_untouched("after a start that failed");
        fs::remove_file(folders.house_lock()).unwrap();
    });
}

/// F11: what a close deletes is its own, also beside what it adopted.
#[test]
fn a_close_deletes_the_artifacts_of_no_other_session() {
    in_house(async |house| {
        let named = |id: &str| OpenSession {
            id: Some(id.into()),
            ..OpenSession::default()
        };
        let (x, y) = (house.desk_of(named("x")), house.desk_of(named("y")));
        print_much(&x).await;
        let kept = print_much(&y).await;
        assert_eq!(files_below(&house.folders().artifacts()).len(), 2);
        x.must::<SessionClose>(CloseSession::default()).await;
        let left = files_below(&house.folders().artifacts());
        assert_eq!(left.len(), 1, "{left:?}");
        y.assert_pattern(&kept.row.id, MUCH).await;
    });
}
