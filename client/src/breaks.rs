//! How often a request is asked again whose connection breaks under it.

use std::time::{Duration, Instant};

use ostler_proto::limits;
use tokio::time::sleep;

/// A connection that held for so long is no part of the row.
const CALM: Duration = Duration::from_millis(limits::BREAK_CALM);

/// Connections that broke one after another.
#[derive(Debug, Default)]
pub(crate) struct Breaks {
    row: u32,
    began: Option<Instant>,
    last: Option<Instant>,
}

impl Breaks {
    /// Another one broke. Returns, after a pause perhaps, whether to ask again.
    pub(crate) async fn again(&mut self) -> bool {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last >= CALM) {
            (self.row, self.began) = (0, Some(now));
        }
        self.row += 1;
        self.last = Some(now);
        if self.row <= limits::BREAKS_AT_ONCE {
            return true;
        }
        let patience = Duration::from_millis(limits::house_patience());
        if self.began.is_some_and(|began| now - began >= patience) {
            return false;
        }
        sleep(Duration::from_millis(limits::BREAK_PAUSE)).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client gave up at its twentieth upgrade, however long ago the first one was.
    #[tokio::test]
    async fn breaks_that_are_far_apart_are_not_counted_together() {
        let mut breaks = Breaks::default();
        for _ in 0..100 {
            assert!(breaks.again().await);
            breaks.last = breaks.last.map(|last| last - CALM);
        }
        assert_eq!(breaks.row, 1);
    }

    #[tokio::test]
    async fn a_row_of_breaks_ends() {
        let mut breaks = Breaks::default();
        for _ in 0..limits::BREAKS_AT_ONCE {
            assert!(breaks.again().await);
        }
        assert!(breaks.again().await, "there is time left");
        let long = Duration::from_millis(limits::house_patience());
        breaks.began = breaks.began.map(|began| began - long);
        assert!(!breaks.again().await);
    }
}
