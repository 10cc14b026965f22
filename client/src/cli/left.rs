//! What a house left that nobody answers for any more: jobs, files, or all of itself without its folder. The next start
//! ends or finds it.
//!
//! Told by the mark that its processes carry and by what its lock file says, never by a socket: whoever cleans folders
//! takes that away, and so does a supervisor that begins to end everything and is killed in the middle.

use ostler::Endpoint;
use ostler::endpoint::check_folder;
use ostler::house::{self, Held};
use ostler_proto::address::Folders;
use ostler_supervisor::Behind;
use ostler_supervisor::tree::Member;

use super::output::note;

/// What is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Left {
    Nothing,
    /// Files or control groups: it did not come to say that nothing is left.
    Remains,
    /// Processes of its jobs: keeper and supervisor were both killed.
    Jobs,
    /// It lives without its folder.
    House,
}

/// What is left of a house in these folders. Nothing while one stands there.
pub(crate) fn of(folders: &Folders) -> Left {
    let mine = check_folder(&folders.run).is_ok();
    if !mine || !matches!(house::held(folders), Ok(Held::No)) {
        return Left::Nothing;
    }
    match ostler_supervisor::behind(folders) {
        Behind::House => Left::House,
        Behind::Jobs => Left::Jobs,
        Behind::Nobody => match house::read(folders) {
            Some(last) if !last.nothing_left => Left::Remains,
            _ => Left::Nothing,
        },
    }
}

/// The most that is left wherever this user's house may be.
pub(crate) fn behind() -> Left {
    let endpoint = Endpoint::of_user();
    let all = endpoint
        .iter()
        .flat_map(|it| it.candidates().iter().map(of));
    all.max().unwrap_or(Left::Nothing)
}

/// The processes that jobs of this user's houses have left.
pub(crate) fn processes() -> Vec<Member> {
    let endpoint = Endpoint::of_user();
    let all = endpoint.iter().flat_map(|it| it.candidates());
    let mine = all.filter(|folders| check_folder(&folders.run).is_ok());
    mine.flat_map(ostler_supervisor::left_by_jobs).collect()
}

/// Says so. Nothing that was asked about is there, but that is not all there is to say.
pub(crate) fn tell() {
    match behind() {
        Left::House => note(
            "note: a supervisor lives whose folder was taken away; it is found again with: ostler daemon start",
        ),
        Left::Jobs => note(
            "note: the last supervisor was killed with its keeper; what it left running ends with: ostler daemon start",
        ),
        Left::Nothing | Left::Remains => {}
    }
}
