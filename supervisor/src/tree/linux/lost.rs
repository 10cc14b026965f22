//! Members that lowered their own limit, and with it lost their cookie: they are told by what ties them to a job.
//!
//! Nobody has such a limit by himself, so there is hardly ever one to look at. Once told, a process is remembered for
//! as long as it is seen: when its parents are dead, nothing else may tie it. Reads only.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::{Target, cookie};
use super::links::marker;
use super::{facts, job_of};

/// How far up parents are asked.
const HIGHEST: usize = 64;

/// Who was told, by number: start time and job.
#[derive(Default)]
pub(super) struct Lost {
    known: HashMap<u32, (u64, u64)>,
}

impl Lost {
    /// Number, start time and job of those among `without` that are somebody's.
    pub(super) fn tell(
        &mut self,
        without: &[u32],
        targets: &[Arc<Target>],
        instance: u32,
    ) -> Vec<(u32, u64, u64)> {
        if without.is_empty() {
            self.known.clear();
            return Vec::new();
        }
        let stats: HashMap<u32, facts::Stat> = without
            .iter()
            .filter_map(|pid| Some((*pid, facts::stat(*pid)?)))
            .collect();
        self.known
            .retain(|pid, (start, _)| stats.get(pid).is_some_and(|stat| stat.start == *start));
        // Whoever is told ties his children, so it is over when nobody is new.
        let mut before = usize::MAX;
        while before != self.known.len() {
            before = self.known.len();
            for (pid, stat) in &stats {
                if !self.known.contains_key(pid)
                    && let Some(job) = self.job(*pid, stat, targets, instance)
                {
                    self.known.insert(*pid, (stat.start, job));
                }
            }
        }
        let known = self.known.iter();
        known
            .map(|(pid, (start, job))| (*pid, *start, *job))
            .collect()
    }

    fn job(
        &self,
        pid: u32,
        stat: &facts::Stat,
        targets: &[Arc<Target>],
        instance: u32,
    ) -> Option<u64> {
        self.job_above(stat.parent, instance).or_else(|| {
            let marker = marker(pid);
            targets.iter().find_map(|target| {
                let Target::Job(mark) = &**target else {
                    return None;
                };
                let tied = mark.leader.is_some_and(|(leader, start)| {
                    (stat.session == leader || stat.group == leader)
                        // Once its number is somebody else's, it says nothing.
                        && facts::start_time(leader).is_none_or(|there| there == start)
                });
                let marked = marker.as_ref() == Some(&mark.process_id);
                (tied || marked).then_some(mark.job)
            })
        })
    }

    /// The job of the nearest ancestor that has one.
    fn job_above(&self, mut pid: u32, instance: u32) -> Option<u64> {
        for _ in 0..HIGHEST {
            if pid <= 1 {
                return None;
            }
            let told = self.known.get(&pid).map(|(_, job)| *job);
            match told.or_else(|| job_of(pid, instance)) {
                Some(cookie::HOUSE_JOB) => return None,
                Some(job) => return Some(job),
                None => pid = facts::stat(pid)?.parent,
            }
        }
        None
    }
}
