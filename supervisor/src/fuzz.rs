//! What is read from memory that an earlier process wrote: no bytes are a reason to panic, and damage hides nothing that
//! stands before it. More cases with `PROPTEST_CASES`.

use std::{fs::File, io::Write as _};

use proptest::prelude::*;

use crate::{
    job::Spec,
    keeper::wire::{ForkRequest, JobRow, Welcome},
    ledger::{Entry, Ledger},
    restore::Past,
};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..400)
}

/// A ledger with so many entries, and its bytes.
fn ledger_of(ids: &[String]) -> Vec<u8> {
    let file = tempfile::tempfile().expect("a file can be made");
    let held = file.try_clone().expect("it can be held twice");
    let (ledger, _) = Ledger::open(held.into()).expect("an empty one can be opened");
    for id in ids {
        ledger.append(&Entry::Closed { id: id.clone() });
    }
    let mut bytes = vec![0; file.metadata().expect("it is open").len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).expect("it can be read");
    bytes
}

fn open(bytes: &[u8]) -> Vec<Entry> {
    let mut file: File = tempfile::tempfile().expect("a file can be made");
    file.write_all(bytes).expect("it can be written");
    let (_, entries) = Ledger::open(file.into()).expect("any bytes are a ledger");
    entries
}

proptest! {
    #[test]
    fn no_bytes_from_the_wire_are_a_reason_to_panic(bytes in bytes()) {
        let _ = ForkRequest::decode(&bytes);
        let _ = JobRow::decode(&bytes);
        let _ = Welcome::decode(&bytes);
        let _ = serde_json::from_slice::<Spec>(&bytes);
    }

    #[test]
    fn a_message_that_is_cut_or_changed_is_refused_or_read_and_never_a_panic(
        record in bytes(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let row = JobRow { slot: 3, record, ..JobRow::default() };
        let mut bytes = row.encode();
        prop_assert_eq!(JobRow::decode(&bytes), Some(row));
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        let _ = JobRow::decode(&bytes);
    }

    #[test]
    fn damage_in_a_ledger_hides_nothing_before_it(
        ids in prop::collection::vec("[a-z]{1,9}", 1..20), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = ledger_of(&ids);
        let at = at.index(bytes.len());
        let same = bytes[at] == byte;
        bytes[at] = byte;
        let kept = open(&bytes);
        let sizes = ids.iter().map(|id| ledger_of(std::slice::from_ref(id)).len());
        let ends = sizes.scan(0, |end, size| { *end += size; Some(*end) });
        let before = ends.take_while(|end| *end <= at).count();
        prop_assert!(kept.len() >= if same { ids.len() } else { before }, "{} of {}", kept.len(), before);
        for (entry, id) in kept.iter().zip(&ids).take(before) {
            let same = matches!(entry, Entry::Closed { id: told } if told == id);
            prop_assert!(same, "{:?}", entry);
        }
        let _ = Past::read(kept);
    }

    #[test]
    fn any_bytes_are_a_ledger(bytes in bytes()) {
        let _ = Past::read(open(&bytes));
    }
}
