//! The supervisor's main: takes the house over from the keeper, puts back what an earlier one left, serves
//! clients, leaves when there is nothing to keep, and ends everything when it is told to.

use std::{
    fs,
    io::{self, Write},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{
    StreamExt,
    future::{join, join_all},
};
use interprocess::{
    local_socket::traits::tokio::Listener as _, os::unix::uds_local_socket::tokio::Listener,
};
use ostler_proto::{
    address::{DIR_VARIABLE, Folders, STEADY_VARIABLE},
    config, limits,
    methods::Build,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::sync::{Notify, Semaphore};

use crate::{
    clock::Moment,
    connection, diary, disk,
    house::{House, longest_dispose},
    job::Job,
    keeper::{cookie, say_nothing_is_left},
    ledger::Ledger,
    life::Tools,
    log::{
        Arena,
        scratch::{ScratchPair, splice_works},
    },
    outbox,
    process::link::{self, Keeper, Leave, Why},
    pump::Pumps,
    quarantine::Quarantine,
    registry::Registry,
    restore, secret,
    tree::{self, Rung, Trees},
    upgrade::Upgrade,
};

/// The wire to the keeper.
const WIRE: i32 = 3;
/// Runs the supervisor on the wire of its keeper.
pub(crate) fn run(folders: Folders, build: &str) -> ExitCode {
    // A start that looks for a living house signals what it takes for a keeper; this is none, and it has no children
    // that could inherit the setting.
    // SAFETY: plain call with a constant disposition.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    // One heap for all threads, and large pieces back to the kernel: the default of one heap a thread costs an idle
    // supervisor more memory than everything it keeps.
    // SAFETY: plain calls before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
    // The keeper has refused a faulty file. One that became so since must not take a house full of jobs with it.
    let settings = config::read(fs::read_to_string(&folders.config));
    config::apply(settings.as_deref().unwrap_or_default());
    let _ = make_folder(&folders.state);
    diary::open(&folders.log());
    if let Err(fault) = settings {
        let file = folders.config.display();
        crate::log_line!("warn", "going on with defaults: {file}, {fault}");
    }
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().clamp(1, 4));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        // Spill writers, scans and looks at ports need a few, whoever waits for a disk one each.
        .max_blocking_threads(limits::WAITING_FOR_DISKS)
        // Kept once they are there, the first one from the beginning: where no process may be made, the runtime gives
        // work to a thread that it has and panics when it has none. A full process table is the very moment at which
        // a tree must be ended.
        .thread_keep_alive(Duration::MAX)
        .thread_stack_size(512 * 1024)
        .enable_all()
        .build();
    let served = runtime.and_then(|runtime| {
        runtime.spawn_blocking(|| ());
        // On a worker: a main thread that is woken for each of its events would cost a switch each time.
        let served = runtime.block_on(async {
            tokio::spawn(serve(folders, build.to_owned()))
                .await
                .map_err(io::Error::other)?
        });
        match served {
            // Clients wait for the next one; a write that is cut here is done again there.
            Ok(End::Upgrade) => runtime.shutdown_background(),
            // What still runs on blocking threads must not hold up the end.
            _ => runtime.shutdown_timeout(Duration::from_millis(200)),
        }
        served
    });
    match served {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            crate::log_line!("error", "the supervisor ends: {error}");
            ExitCode::FAILURE
        }
    }
}

/// See [`STEADY_VARIABLE`].
fn steady_time() -> Duration {
    let hermetic = std::env::var_os(DIR_VARIABLE).is_some();
    let given = std::env::var(STEADY_VARIABLE)
        .ok()
        .filter(|_| hermetic)
        .and_then(|ms| ms.parse().ok());
    Duration::from_millis(given.unwrap_or(limits::steady()))
}

/// Why this process is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The house is.
    House,
    /// The next supervisor waits.
    Upgrade,
}

/// Makes a private folder and those above it.
fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

async fn serve(folders: Folders, build: String) -> io::Result<End> {
    // SAFETY: the keeper put the wire there before it executed us, and nobody else in this process has it.
    let wire = unsafe { OwnedFd::from_raw_fd(WIRE) };
    let (keeper, brought) = match Keeper::hello(wire).await {
        Ok(house) => house,
        // A keeper that only gives this one up kills it, and holds the lock of the house.
        Err(error) if is_end(&error) => {
            return end_orphans(&folders).await.map_err(|why| {
                crate::log_line!("error", "its jobs cannot be ended: {why}");
                error
            });
        }
        Err(error) => return Err(error),
    };
    let listener = brought.listener.try_clone()?;
    let house = match furnish(folders, build, keeper.clone(), brought).await {
        Ok(house) => house,
        Err(error) => {
            // The words go to the client that waits for this start, and into the lock file.
            let _ = keeper.leave(&Leave::Refuse(&error.to_string()));
            keeper.flushed().await;
            return Err(error);
        }
    };
    let accepting = Arc::new(Notify::new());
    let mut accept = tokio::spawn(accept(listener, Arc::clone(&house), Arc::clone(&accepting)));
    keeper.ready();
    crate::log_line!(
        "info",
        "serving, generation {}, pid {}, {}, keeper {}",
        house.generation,
        std::process::id(),
        house.this(),
        house.keeper_pid
    );
    let old = Arc::clone(&house);
    tokio::spawn(async move { old.forget_old().await });
    let steady = keeper.clone();
    tokio::spawn(async move {
        tokio::time::sleep(steady_time()).await;
        steady.steady();
    });
    let mut listeners = keeper
        .listeners()
        .ok_or_else(|| io::Error::other("the listeners of this wire are taken already"))?;
    let mut signals = signal_hook_tokio::SignalsInfo::<
        signal_hook::iterator::exfiltrator::WithOrigin,
    >::new([SIGTERM, SIGINT, SIGHUP])?;
    loop {
        tokio::select! {
            () = keeper.closed() => return keeper_lost(&house).await,
            Some(fresh) = listeners.recv() => {
                house.refurnish();
                crate::log_line!("info", "the socket was bound again");
                accept.abort();
                accept = tokio::spawn(self::accept(fresh, Arc::clone(&house), Arc::clone(&accepting)));
            }
            Some(origin) = signals.next() => {
                crate::log_line!("info", "signal {:?}: stopping everything", origin);
                return stop_and_leave(&house, &keeper).await;
            }
            _ = keeper.asked_to_end() => {
                crate::log_line!("info", "the keeper was told to end: stopping everything");
                return stop_and_leave(&house, &keeper).await;
            }
            () = house.disposed.notified() => return dispose(&house, Leave::Dispose).await,
            () = house.upgrade.going() => {
                accept.abort();
                return Ok(make_way(&house).await);
            }
            () = idle(&house) => {
                if leave_idle(&house, &accepting).await? {
                    return dispose(&house, Leave::Idle).await;
                }
            }
        }
    }
}

/// Stops every job and leaves. A keeper that dies meanwhile tells of no end any more: the stop would wait for ever.
async fn stop_and_leave(house: &House, keeper: &Keeper) -> io::Result<End> {
    tokio::select! {
        biased;
        () = keeper.closed() => keeper_lost(house).await,
        _ = house.stop_all(limits::grace(), "dispose") => dispose(house, Leave::Dispose).await,
    }
}

/// Builds the house from what the keeper brought, and puts back what an earlier supervisor left.
async fn furnish(
    folders: Folders,
    build: String,
    keeper: Keeper,
    brought: link::House,
) -> io::Result<Arc<House>> {
    make_folder(&folders.state).map_err(|e| named(&folders.state, &e))?;
    let arena = Arena::map(brought.arena, brought.headers)?;
    let (ledger, entries) = Ledger::open(brought.ledger)?;
    let ledger = Arc::new(ledger);
    let pairs = brought.scratch.into_iter().enumerate();
    let pairs: Vec<_> = pairs
        .map(|(block, (read, write))| ScratchPair { read, write, block })
        .collect();
    let rung = rung(brought.cookie);
    let trees = Trees::with_groups(brought.instance, rung, brought.groups);
    let most_jobs = most_jobs();
    let past = restore::Past::read(entries);
    let started_at = past.started_at.unwrap_or_else(|| Moment::now().wall);
    let registry = Arc::new(Registry::new(
        Arc::clone(&ledger),
        Arc::clone(&arena),
        folders.artifacts(),
        trees.rung(),
        most_jobs,
        started_at,
        past.generation + 1,
    ));
    if brought.why == Why::First {
        clear_leftovers(&folders, &trees).await?;
    }
    let byte_path = if splice_works().is_ok_and(|(pipe, _)| pipe) {
        "splice"
    } else {
        "read"
    };
    let jobs = keeper.fetch().await;
    let quarantine = Quarantine::new(&arena, brought.restoring, past.quarantined());
    let restored = restore::prepare(&registry, &arena, &past, jobs, trees.rung(), quarantine);
    for pair in &pairs {
        restored.empty(pair, &arena)?;
    }
    let pumps = Arc::new(Pumps::new(pairs, keeper.clone()));
    // SAFETY: getppid has no precondition.
    let keeper_pid = unsafe { libc::getppid() } as u32;
    let house = Arc::new(House {
        tools: Tools {
            keeper,
            trees,
            ledger: Arc::clone(&ledger),
            pumps,
            notices: registry.notice_numbers(),
        },
        owner_key: owner_key(&folders).map_err(|e| named(&folders.owner_key(), &e))?,
        home: home(),
        started_at,
        generation: past.generation + 1,
        registry,
        folders,
        keeper_pid,
        byte_path,
        disposed: Notify::new(),
        ended: Notify::new(),
        places: Arc::new(Semaphore::new(limits::connections())),
        build,
        keeper_build: Build {
            version: brought.build,
            build: brought.build_id,
        },
        keeper_wire: brought.wire,
        taken_back: brought.taken_back,
        upgrade: Upgrade::default(),
    });
    ledger.append(&crate::ledger::Entry::House {
        started_at: house.started_at,
        generation: house.generation,
        next_number: past.next_number,
        notices: past.notices,
        format: crate::ledger::FORMAT,
    });
    restored.resume(&house, &past);
    std::mem::forget(brought.lock);
    Ok(house)
}

/// Ends what a dead house left running and clears its folders, before anybody is answered.
///
/// # Errors
/// The disk of the artifacts does not answer. Nobody may clear them later: what is there by then is in use.
async fn clear_leftovers(folders: &Folders, trees: &Trees) -> io::Result<()> {
    // SAFETY: getppid has no precondition.
    let keep = [std::process::id(), unsafe { libc::getppid() } as u32];
    let ended = trees.sweep_house(&keep).await;
    let gone = ended.seen.len().saturating_sub(ended.survivors.len());
    if gone > 0 {
        crate::log_line!("warn", "ended what an earlier house left: {gone} processes");
    }
    for survivor in ended.survivors {
        crate::log_line!(
            "error",
            "left by an earlier house: pid {} {}",
            survivor.pid,
            survivor.why
        );
    }
    match disk::clear(&folders.artifacts(), limits::DISK_ANSWERS).await {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        // What stands in its place is in the way of long logs alone, and each of them will say so.
        _ => Ok(()),
    }
}

/// Clears the artifacts of a house that ends.
async fn clear_artifacts(folders: &Folders) {
    if let Err(error) = disk::clear(&folders.artifacts(), limits::DISK_ANSWERS_LAST).await {
        let folder = folders.artifacts();
        crate::log_line!("warn", "artifacts {} stay: {error}", folder.display());
    }
}

/// How members are found in this house.
fn rung(cookie: cookie::Rung) -> Rung {
    match cookie {
        cookie::Rung::None => Rung::Links,
        _ => Rung::Cookie,
    }
}

/// Live jobs for which both processes have descriptors.
fn most_jobs() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    // The keeper has the same one.
    limits::jobs_within(limit.rlim_cur)
}

fn home() -> PathBuf {
    // SAFETY: called once, before other threads of ours look into the password file.
    let entry = unsafe { libc::getpwuid(libc::getuid()) };
    if entry.is_null() {
        return PathBuf::from("/");
    }
    // SAFETY: the entry is not null and its directory is NUL-terminated.
    let dir = unsafe { std::ffi::CStr::from_ptr((*entry).pw_dir) };
    PathBuf::from(dir.to_string_lossy().into_owned())
}

/// An error with the file that it is about, for words that reach people.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Reads the owner key, or makes it: 32 random bytes in hex, readable by the owner alone.
fn owner_key(folders: &Folders) -> io::Result<String> {
    let path = folders.owner_key();
    match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() => {
            let key = fs::read_to_string(&path)?;
            if key.trim().len() == 64 {
                return Ok(key.trim().to_owned());
            }
            fs::remove_file(&path)?;
        }
        // A link, to wherever, is no key of ours.
        Ok(_) => fs::remove_file(&path)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let key = secret::token();
    write_key(&path, &key)?;
    Ok(key)
}

fn write_key(path: &Path, key: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(key.as_bytes())
}

impl House {
    /// Puts back what a cleaner of folders took away together with the socket.
    fn refurnish(&self) {
        let _ = make_folder(&self.folders.state);
        self.put_back_key();
        diary::open(&self.folders.log());
    }

    /// Puts back the owner key where somebody took it away: without it nobody could even stop the house.
    pub(crate) fn put_back_key(&self) {
        let path = self.folders.owner_key();
        if !path.exists()
            && let Err(error) = write_key(&path, &self.owner_key)
        {
            crate::log_line!("error", "the owner key cannot be written: {error}");
        }
    }
}

async fn accept(listener: OwnedFd, house: Arc<House>, accepted: Arc<Notify>) {
    let listener = match Listener::try_from(listener) {
        Ok(listener) => listener,
        Err(error) => return crate::log_line!("error", "the socket cannot be used: {error}"),
    };
    loop {
        match listener.accept().await {
            Ok(stream) => {
                accepted.notify_waiters();
                // Counted from here on: one that never says a word holds a descriptor all the same.
                let Ok(place) = Arc::clone(&house.places).try_acquire_owned() else {
                    crate::log_line!(
                        "warn",
                        "a client beyond {} was not taken",
                        limits::connections()
                    );
                    continue;
                };
                let served = connection::serve(stream, Arc::clone(&house));
                tokio::spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(error) => {
                // No descriptors: those who are here finish first. Trying at once again would only spin.
                crate::log_line!("warn", "a client could not be taken: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Returns when there has been nothing to keep for the whole time.
async fn idle(house: &House) {
    let mut signs = house.registry.signs();
    loop {
        // The sender lives in the house.
        let _ = signs.wait_for(|s| s.empty).await;
        let busy = signs.wait_for(|s| !s.empty);
        if tokio::time::timeout(Duration::from_millis(limits::leave_after()), busy)
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Takes `start.lock`, so that nobody starts a house beside this one, and looks once more. False: somebody came.
async fn leave_idle(house: &House, accepted: &Notify) -> io::Result<bool> {
    let lock = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(house.folders.start_lock());
    // Where its folder was taken away, nobody can be about to start one, and nobody comes any more.
    let lock = lock.inspect_err(|error| {
        crate::log_line!("warn", "leaving without the lock of starters: {error}");
    });
    if lock.as_ref().is_ok_and(|lock| lock.try_lock().is_err()) {
        return Ok(false);
    }
    house.registry.leave();
    // Whoever is in the backlog is accepted by now or will be within a moment; later ones find no socket.
    let came = tokio::time::timeout(Duration::from_millis(50), accepted.notified())
        .await
        .is_ok();
    if came || house.registry.load().connections > 0 {
        house.registry.stay();
        return Ok(false);
    }
    let _ = fs::remove_file(house.folders.socket());
    // Held until this process is gone.
    std::mem::forget(lock);
    Ok(true)
}

/// How long the answer to who asked for an upgrade may take to be written; that one may be gone.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// How long the other answers may take: somebody who does not read must not keep all others waiting.
const ANSWERS_WITHIN: Duration = Duration::from_millis(20);

/// The next supervisor waits: what was answered is written, no byte moves any more. All else is as in a crash, which
/// loses nothing, and may come at any moment of this.
async fn make_way(house: &House) -> End {
    let _ = tokio::time::timeout(ANSWER_WITHIN, house.upgrade.answered()).await;
    let _ = tokio::time::timeout(ANSWERS_WITHIN, outbox::written()).await;
    crate::log_line!("info", "making way for the next supervisor");
    house.tools.pumps.stop();
    End::Upgrade
}

/// The orderly end: answers are out, artifacts go, the keeper ends what is left and removes the socket.
async fn dispose(house: &House, why: Leave<'_>) -> io::Result<End> {
    let mut signs = house.registry.signs();
    // The client that asked reads its answer and goes; a client that stays does not hold up the end.
    let gone = signs.wait_for(|s| s.alone);
    let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
    clear_artifacts(&house.folders).await;
    crate::log_line!("info", "leaving: {why:?}");
    let _ = house.tools.keeper.leave(&why);
    house.tools.keeper.flushed().await;
    Ok(End::House)
}

/// The keeper was killed: zombies and orphans are init's now and their statuses are lost. End everything.
async fn keeper_lost(house: &House) -> io::Result<End> {
    crate::log_line!("error", "the keeper is gone: ending everything");
    house.registry.leave();
    end_everything(&house.folders, &house.tools.trees, &house.registry.live()).await;
    Ok(End::House)
}

/// The other end of the wire is gone.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// The keeper was killed before it had told this process of its house; the supervisor before has made way for it, or was
/// killed as well. Nobody else is there to end the jobs.
async fn end_orphans(folders: &Folders) -> io::Result<End> {
    let lock = fs::OpenOptions::new()
        .write(true)
        .open(folders.house_lock())?;
    // The supervisor before ends everything itself where it is not gone. Whoever takes it after that ends it as well.
    let wait = Duration::from_millis(longest_dispose());
    let taken = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock));
    let Ok(Ok(Ok(lock))) = tokio::time::timeout(wait, taken).await else {
        return Ok(End::House);
    };
    let run = fs::canonicalize(&folders.run)?;
    let instance = tree::instance_here(&run)?;
    // The supervisor before lets go of the lock a moment before it is gone; with the lock here no other one comes.
    let began = Instant::now();
    while tree::house_is_alive(instance, &[std::process::id()])?.is_some() {
        if began.elapsed() > wait {
            crate::log_line!(
                "error",
                "the keeper is gone, and somebody else of its house lives"
            );
            return Ok(End::House);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    crate::log_line!(
        "error",
        "the keeper is gone before its house was told: ending everything"
    );
    let rung = Rung::allowed().unwrap_or(Rung::Cookie);
    let groups = tree::cgroup::Cgroups::find(instance);
    let trees = Trees::with_groups(instance, rung.max(Rung::Cookie), groups);
    end_everything(folders, &trees, &[]).await;
    drop(lock);
    Ok(End::House)
}

/// Ends all that has the mark of the house, and the jobs that are known, and clears up behind them.
async fn end_everything(folders: &Folders, trees: &Trees, jobs: &[Arc<Job>]) {
    let _ = fs::remove_file(folders.socket());
    let keep = [std::process::id()];
    // What is known of each job finds those as well whose cookie was lost, or never was.
    let jobs = jobs.iter().map(|job| trees.kill(job.mark()));
    let sweep = async {
        let (mut ended, jobs) = join(trees.sweep_house(&keep), join_all(jobs)).await;
        for survivor in jobs.into_iter().flat_map(|job| job.survivors) {
            if !ended.survivors.contains(&survivor) {
                ended.survivors.push(survivor);
            }
        }
        ended
    };
    let mut nothing_left = true;
    match tokio::time::timeout(Duration::from_millis(longest_dispose()), sweep).await {
        Ok(ended) => {
            for survivor in ended.survivors {
                nothing_left = false;
                crate::log_line!("error", "not ended: pid {} {}", survivor.pid, survivor.why);
            }
        }
        Err(_) => {
            nothing_left = false;
            crate::log_line!("error", "ending everything takes too long");
        }
    }
    if !trees.remove_groups() {
        nothing_left = false;
        crate::log_line!("error", "a control group of the house is left");
    }
    clear_artifacts(folders).await;
    if nothing_left {
        // Where it cannot be said, the next one who asks looks once more.
        let _ = say_nothing_is_left(&folders.house_lock());
    }
}
