//! Starts a server, waits for its port, talks to it and stops it.
//!
//! `cargo run --example dev_server -- PORT CMD...`, for instance `-- 8000 python3 -m http.server 8000`.

use ostler::{Client, Endpoint, Mode, Options};
use ostler_proto::methods::{For, JobStart, JobStop, OpenSession, Start, Stop, Wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let port: u16 = args
        .next()
        .ok_or("usage: dev_server PORT CMD...")?
        .parse()?;

    let mut options = Options::new(Endpoint::of_user()?, Mode::Start);
    // Half a minute after this program is gone, however it went, what it started is stopped.
    options.session = Some(OpenSession {
        lease_ms: Some(30_000),
        ..OpenSession::default()
    });
    let client = Client::new(options);

    let start = Start {
        args: args.collect(),
        // Asked again after a break, it starts nothing twice.
        key: Some(ostler::fresh_key()),
        // Of whoever started the supervisor the job gets nothing.
        cwd: Some(std::env::current_dir()?.display().to_string()),
        env: std::env::vars().map(|(k, v)| (k, Some(v))).collect(),
        env_replace: true,
        ..Start::default()
    };
    let row = client.ask::<JobStart>(start).await?;
    let wait = Wait {
        ids: vec![row.process_id.clone()],
        what: For::Port(port),
        timeout_ms: Some(30_000),
        ..Wait::default()
    };
    let waited = client.wait(wait).await?;
    println!(
        "{:?} after {:?}",
        waited.jobs[0].reason, waited.jobs[0].listener
    );

    println!("{}", talk(port)?);

    let stop = Stop {
        ids: vec![row.process_id],
        ..Stop::default()
    };
    let receipt = client.ask::<JobStop>(stop).await?;
    println!("stopped: {} processes", receipt.jobs[0].ended);
    Ok(())
}

fn talk(port: u16) -> std::io::Result<String> {
    use std::io::{BufRead, BufReader, Write};
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port))?;
    socket.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line)?;
    Ok(line.trim_end().into())
}
