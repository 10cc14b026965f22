//! Windows of terminals as people write them: `120x40`, columns first.

use ostler_proto::job::Size;
use ostler_proto::limits::TERMINAL_SIDE;

/// Parses `COLSxROWS`.
pub(crate) fn size(text: &str) -> Result<Size, String> {
    let sides = text.split_once('x');
    let side = |side: &str| {
        side.parse()
            .ok()
            .filter(|n| (1..=TERMINAL_SIDE).contains(n))
    };
    match sides.and_then(|(cols, rows)| Some((side(cols)?, side(rows)?))) {
        Some((cols, rows)) => Ok(Size { rows, cols }),
        None => Err(format!(
            "must be COLSxROWS, each 1 to {TERMINAL_SIDE}: 120x40"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_first_and_nothing_else_is_taken() {
        let wide = Size {
            rows: 40,
            cols: 120,
        };
        assert_eq!(size("120x40"), Ok(wide));
        for bad in [
            "", "x", "80", "0x24", "80x0", "-1x5", "5001x5", "80x24x1", "80X24", " 80x24",
        ] {
            assert!(size(bad).is_err(), "{bad:?}");
        }
    }
}
