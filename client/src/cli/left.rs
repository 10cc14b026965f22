//! What a house left that was killed as a whole: its socket, and perhaps jobs. The next start ends them.

use ostler::Endpoint;
use ostler::endpoint::check_folder;
use ostler::house::{self, Held};

use super::output::note;

/// Tells whether the last house ended without taking its socket along: killed, keeper and supervisor both.
pub(crate) fn behind() -> bool {
    let Ok(endpoint) = Endpoint::of_user() else {
        return false;
    };
    endpoint.candidates().iter().any(|folders| {
        let ours = matches!(check_folder(&folders.run), Ok(true));
        ours && folders.socket().exists() && matches!(house::held(folders), Ok(Held::No))
    })
}

/// Says so. Nothing that was asked about is there, but that is not all there is to say.
pub(crate) fn tell() {
    if behind() {
        note(
            "note: the last supervisor was killed with its keeper; what it left running ends with: ostler daemon start",
        );
    }
}
