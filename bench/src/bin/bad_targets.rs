//! `bad_targets ADDRESS KIND`: a misbehaving service for `scripts/bench targets`. It serves one kind of bad target
//! until it is killed.
//!
//! | kind | behaviour |
//! |---|---|
//! | `unanswered` | accepts no connection; the backlog of its port is full, so connecting hangs |
//! | `silent` | accepts, and neither reads nor writes |
//! | `trickle` | responds with a body of one byte per second |
//! | `reset` | resets the connection once the request has arrived |
//! | `endless` | responds with an endless body, at a few MiB per second |

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use abide_bench::bad_target::BadTargetKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Longer than any run: the process is killed before.
const FOR_EVER: Duration = Duration::from_secs(24 * 3_600);
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
/// The size of one chunk of an endless body. This process shares two cores with the measured server, so it does not
/// send as fast as it could.
const CHUNK_BYTES: usize = 16 * 1024;
const CHUNK_EVERY: Duration = Duration::from_millis(4);

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().and_then(|address| address.parse::<SocketAddr>().ok());
    let kind = arguments.next().and_then(|kind| kind.parse::<BadTargetKind>().ok());
    let (Some(address), Some(kind)) = (address, kind) else {
        eprintln!("usage: bad_targets ADDRESS unanswered|silent|trickle|reset|endless");
        return ExitCode::FAILURE;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(serve(address, kind))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bad_targets: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: SocketAddr, kind: BadTargetKind) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    if matches!(kind, BadTargetKind::Unanswered) {
        let listener = socket.listen(1)?;
        // A backlog of 1 has two places. Later connections are not even refused.
        let backlog = [TcpStream::connect(address).await?, TcpStream::connect(address).await?];
        tokio::time::sleep(FOR_EVER).await;
        drop((listener, backlog));
        return Ok(());
    }
    let listener: TcpListener = socket.listen(1_024)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A caller that closes the connection is no error.
        tokio::spawn(async move { drop(misbehave(stream, kind).await) });
    }
}

async fn misbehave(mut stream: TcpStream, kind: BadTargetKind) -> io::Result<()> {
    if matches!(kind, BadTargetKind::Silent | BadTargetKind::Unanswered) {
        tokio::time::sleep(FOR_EVER).await;
        return Ok(());
    }
    // Requests are small enough for one read, or nearly so; their end does not matter here.
    let mut request = [0; 16 * 1024];
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    if matches!(kind, BadTargetKind::Reset) {
        return stream.set_zero_linger();
    }
    stream.write_all(HEAD).await?;
    let (chunk, every) = match kind {
        BadTargetKind::Trickle => (b"1\r\n \r\n".to_vec(), Duration::from_secs(1)),
        _ => {
            let chunk = vec![b' '; CHUNK_BYTES];
            ([format!("{CHUNK_BYTES:x}\r\n").as_bytes(), &chunk, b"\r\n"].concat(), CHUNK_EVERY)
        }
    };
    loop {
        stream.write_all(&chunk).await?;
        tokio::time::sleep(every).await;
    }
}
