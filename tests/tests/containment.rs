//! Promise: nothing escapes, whatever a program does and however its tree comes to its end, on every rung and for every
//! user; where the kernel does not allow that, the matrix says so.

use std::path::Path;

use ostler_tests::containment::{End, User, column, excuse, must_be_named};
use ostler_tests::skip;

fn leaves_nobody(rung: &str, user: User, end: End) {
    let program = Path::new(env!("CARGO_BIN_EXE_containment"));
    let Some(cells) = column(program, rung, user, end) else {
        return skip(&format!("no {rung} for {} here", user.word()));
    };
    let left = cells.iter().filter(|cell| cell.left > 0);
    let left: Vec<_> = left
        .filter(|cell| excuse(&cell.escape, rung, user, end).is_none())
        .collect();
    // Who may not be ended is named at least, whatever the end; a chain has no name for longer than a moment.
    let silent: Vec<_> = cells
        .iter()
        .filter(|cell| cell.left > 0 && must_be_named(&cell.escape) && !cell.named)
        .collect();
    assert!(silent.is_empty(), "{silent:?}");
    assert!(cells.len() >= 25, "{cells:?}");
    assert!(left.is_empty(), "{left:?}");
}

/// A column for each rung and user, a test for each end of it.
macro_rules! columns {
    ($($module:ident: $rung:literal, $user:ident;)*) => {
        $(mod $module {
            crate::ends! { $rung, $user:
                stop Stop,
                timeout Timeout,
                release Release,
                close_of_the_session Close,
                end_of_the_house Dispose,
                crash_then_stop Crash,
                killed_keeper Orphaned,
            }
        })*
    };
}

macro_rules! ends {
    ($rung:literal, $user:ident: $($name:ident $end:ident,)*) => {
        $(#[test]
        fn $name() {
            crate::leaves_nobody($rung, crate::User::$user, crate::End::$end);
        })*
    };
}
use ends;

columns! {
    cgroup_root: "cgroup", Root;
    cgroup_user: "cgroup", Ordinary;
    cookie_root: "cookie", Root;
    cookie_user: "cookie", Ordinary;
    links_root: "links", Root;
    links_user: "links", Ordinary;
}
