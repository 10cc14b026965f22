//! What ostler costs above the floor: its own figures and the kernel's, taken by turns in one process, so that a
//! noisy machine disturbs both alike. Prints one line a measure: floor, ours, ratio of the medians.
//!
//! `cargo bench -p ostler-tests`; `OSTLER_BIN` names another binary than the release one.

use std::{
    ffi::CString,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

fn main() {
    let mut bench = Bench::new();
    bench.latency();
    bench.capture(true);
    bench.capture(false);
    bench.tail();
    bench.list();
    bench.memory();
}

struct Bench {
    dir: PathBuf,
    daemon: Child,
    connection: Connection,
}

struct Connection {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    id: u64,
}

impl Connection {
    fn open(dir: &std::path::Path) -> Self {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Ok(writer) = UnixStream::connect(dir.join("ostler.sock")) {
                let reader =
                    BufReader::new(writer.try_clone().expect("a socket can be duplicated"));
                let mut connection = Self {
                    reader,
                    writer,
                    id: 0,
                };
                // The keeper listens before the supervisor has written its key; an answer says that it has.
                connection.call("supervisor/info", json!({}));
                let key = fs::read_to_string(dir.join("owner.key"))
                    .expect("the key is there when it listens");
                connection.call("supervisor/hello", json!({ "ownerKey": key }));
                connection.call("session/open", json!({ "id": "bench", "commands": 5000 }));
                return connection;
            }
            assert!(Instant::now() < until, "no supervisor");
        }
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.id += 1;
        let line = json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params });
        self.writer
            .write_all(format!("{line}\n").as_bytes())
            .expect("it reads");
        self.id
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("it answers");
        line
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        loop {
            let answer: Value = serde_json::from_str(&self.line()).expect("answers are JSON");
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Bench {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("ostler-bench-{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .expect("a fresh folder");
        let binary = std::env::var_os("OSTLER_BIN").map_or_else(release_binary, PathBuf::from);
        let daemon = Command::new(binary)
            .args(["daemon", "run"])
            .env("OSTLER_DIR", &dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("cargo build --release -p ostler");
        let connection = Connection::open(&dir);
        Self {
            dir,
            daemon,
            connection,
        }
    }

    fn latency(&mut self) {
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        let request = json!({ "start": { "args": ["/bin/true"] }, "collect": false });
        for round in 0..1_100 {
            let begun = Instant::now();
            fork_exec_wait();
            let direct = begun.elapsed();
            let begun = Instant::now();
            self.connection.send("job/run", request.clone());
            self.connection.line();
            if round >= 100 {
                floor.push(direct);
                ours.push(begun.elapsed());
            }
        }
        tell("true, start to known end, us", &mut floor, &mut ours);
    }

    fn capture(&mut self, spill: bool) {
        let (mut floor, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let begun = Instant::now();
            drain_pipe(spill.then(|| self.dir.join("floor")));
            floor.push(begun.elapsed());
            let begun = Instant::now();
            let start =
                json!({ "args": ["head", "-c", "1G", "/dev/zero"], "output": { "spill": spill } });
            let row = self
                .connection
                .call("job/run", json!({ "start": start, "collect": false }));
            ours.push(begun.elapsed());
            self.connection
                .call("job/release", json!({ "id": row["id"] }));
        }
        let what = if spill {
            "1 GiB with spill, ms"
        } else {
            "1 GiB ring only, ms"
        };
        tell_in(what, &mut floor, &mut ours, 1e3);
    }

    /// Time from the child's write to the line at a tailing client; the floor is a pipe read.
    fn tail(&mut self) {
        let script = "import time,sys\nfor _ in range(120):\n time.sleep(0.05)\n sys.stdout.write('%d\\n' % time.monotonic_ns())\n sys.stdout.flush()";
        let args = json!(["python3", "-c", script]);
        let id = self.connection.call("job/start", json!({ "args": args }))["id"].clone();
        let mut tail = Connection::open(&self.dir);
        tail.send(
            "job/tail",
            json!({ "id": id, "follow": true, "since": 0, "partialResultToken": 1 }),
        );
        let mut ours = Vec::new();
        loop {
            let message: Value = serde_json::from_str(&tail.line()).expect("JSON");
            let now = monotonic();
            let Some(text) = message["params"]["value"]["page"]["text"].as_str() else {
                break;
            };
            ours.extend(
                text.lines()
                    .filter_map(|l| l.parse::<u64>().ok())
                    .map(|at| Duration::from_nanos(now - at)),
            );
        }
        let mut child = Command::new("python3")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut floor = Vec::new();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
            let now = monotonic();
            let at: u64 = line.expect("text").parse().expect("a number");
            floor.push(Duration::from_nanos(now - at));
        }
        child.wait().expect("our child");
        tell(
            "line written to line at a tailing client, us",
            &mut floor,
            &mut ours,
        );
    }

    fn list(&mut self) {
        for _ in 0..1_000 {
            self.connection
                .call("job/start", json!({ "args": ["sleep", "1000"] }));
        }
        let mut times: Vec<Duration> = (0..50)
            .map(|_| {
                let begun = Instant::now();
                self.connection.send("job/list", json!({}));
                self.connection.line();
                begun.elapsed()
            })
            .collect();
        println!(
            "list of 1,000 jobs: {:.2} ms",
            median(&mut times).as_secs_f64() * 1e3
        );
        let begun = Instant::now();
        self.connection
            .call("job/stop", json!({ "all": true, "force": true }));
        println!(
            "stop --force of 1,000 jobs: {:.0} ms",
            begun.elapsed().as_secs_f64() * 1e3
        );
        self.connection.call("session/close", json!({}));
    }

    fn memory(&mut self) {
        let info = self.connection.call("supervisor/info", json!({}));
        let pss = |pid: &Value| -> u64 {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("Pss:"))
                .unwrap_or("0")
                .trim();
            line.trim_end_matches(" kB").trim().parse().unwrap_or(0)
        };
        println!(
            "memory after all of it: supervisor {} KiB, keeper {} KiB PSS",
            pss(&info["pid"]),
            pss(&info["keeperPid"])
        );
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.connection.send("supervisor/stop", json!({}));
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn release_binary() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/release/ostler"
    ))
}

fn fork_exec_wait() {
    let path = CString::new("/bin/true").expect("no NUL");
    let argv = [path.as_ptr(), std::ptr::null()];
    // SAFETY: this process has one thread; the child makes one system call or leaves at once.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::execv(path.as_ptr(), argv.as_ptr());
            libc::_exit(127);
        }
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// A raw read loop over a pipe, with a write for each read when there is a file.
fn drain_pipe(file: Option<PathBuf>) {
    let mut child = Command::new("head")
        .args(["-c", "1G", "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("head");
    let mut out = child.stdout.take().expect("piped");
    let mut file = file.map(|f| fs::File::create(f).expect("a file in our folder"));
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let n = out.read(&mut buffer).expect("a pipe");
        if n == 0 {
            break;
        }
        if let Some(file) = &mut file {
            file.write_all(&buffer[..n]).expect("room on the disk");
        }
    }
    child.wait().expect("our child");
}

fn monotonic() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn tell(what: &str, floor: &mut [Duration], ours: &mut [Duration]) {
    tell_in(what, floor, ours, 1e6);
}

fn tell_in(what: &str, floor: &mut [Duration], ours: &mut [Duration], unit: f64) {
    let (f, o) = (
        median(floor).as_secs_f64() * unit,
        median(ours).as_secs_f64() * unit,
    );
    let worst = ours[ours.len() * 99 / 100].as_secs_f64() * unit;
    println!(
        "{what}: floor {f:.0}, ours {o:.0}, ratio {:.2}, our p99 {worst:.0}",
        o / f
    );
}
