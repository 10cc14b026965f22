//! The example of the library, run as its reader would run it.

use std::path::Path;
use std::process::Command;

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn the_example_starts_waits_talks_and_stops() {
    if !has("python3") {
        let why = "no python3 here, which plays the server of the example\n";
        eprint!("SKIPPED: {why}");
        if let Some(list) = std::env::var_os("OSTLER_SKIPPED") {
            // The test command counts what is in there.
            let file = std::fs::OpenOptions::new().append(true).open(list);
            let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, why.as_bytes()));
        }
        return;
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_ostler"));
    let example = binary.with_file_name("examples").join("dev_server");
    let dir = tempfile::Builder::new()
        .prefix("o")
        .tempdir_in("/tmp")
        .unwrap();
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let told = Command::new("timeout")
        .arg("60")
        .arg(example)
        .args([&port, "python3", "-m", "http.server", &port])
        .env("OSTLER_DIR", dir.path())
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", binary.parent().unwrap().display()),
        )
        .output()
        .unwrap();
    // Ended before anything is looked at, so that a failure leaves nobody behind.
    let ended = Command::new(binary)
        .args(["daemon", "stop"])
        .env("OSTLER_DIR", dir.path())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&told.stdout);
    assert!(
        told.status.success(),
        "{out}{}",
        String::from_utf8_lossy(&told.stderr)
    );
    assert!(out.contains("HTTP/1.0 200 OK"), "{out}");
    assert!(out.contains("stopped: 1 processes"), "{out}");
    assert!(ended.status.success());
}
