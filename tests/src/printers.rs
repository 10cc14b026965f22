//! Jobs that print their pattern until they are told to end, each with a size of its pieces and an exit code of its own.

use ostler_proto::job::{Outcome, Row};

use crate::{Desk, House, script};

/// Some of them.
pub struct Printers {
    over: String,
    /// As they were started; the exit code of each is its place.
    pub rows: Vec<Row>,
}

impl Printers {
    /// Starts so many. The first prints pieces of `bytes`, each one a byte more than the one before, so that they never
    /// fall on a border of anything; a piece every `ms` milliseconds.
    pub async fn start(house: &House, desk: &Desk, count: usize, bytes: usize, ms: u64) -> Self {
        let over = house.path("over");
        let mut rows = Vec::new();
        for n in 0..count {
            let steps = format!("until {over} {} {ms} , exit {n}", bytes + n);
            rows.push(desk.start(script(&steps)).await);
        }
        Self { over, rows }
    }

    /// Ends them: every code is right, and every byte is there.
    ///
    /// # Panics
    /// It is not.
    pub async fn finish(&self, desk: &Desk) {
        std::fs::write(&self.over, "").expect("a file can be made");
        for (n, row) in self.rows.iter().enumerate() {
            let row = desk.wait(&row.id).await;
            let told = (row.outcome, row.exit_code, row.output.lost);
            let right = (Some(Outcome::Exited), Some(n as i32), 0);
            assert_eq!(told, right, "{row:?}");
            desk.assert_whole(&row).await;
        }
    }
}
