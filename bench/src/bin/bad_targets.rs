//! `bad_targets ADDRESS KIND`: a service that nobody would want to call, for `scripts/bench targets`. Serves one kind of trouble until it is killed.
//!
//! | kind | what it does |
//! |---|---|
//! | `unanswered` | accepts nothing, with a full line before its port: who connects hears nothing |
//! | `silent` | accepts, and neither reads nor writes |
//! | `trickle` | answers with a body of one byte a second |
//! | `reset` | resets the connection once the request is there |
//! | `endless` | answers with a body that does not end, at a few MiB a second |

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use abide_bench::bad_target::Kind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Longer than any run: what is held on to until the process is killed.
const FOR_EVER: Duration = Duration::from_secs(24 * 3_600);
const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
/// Of a body without end, in one chunk. All calls share two cores with what is measured, so it is not sent as fast as it could be.
const PIECE_BYTES: usize = 16 * 1024;
const PIECE_EVERY: Duration = Duration::from_millis(4);

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().and_then(|address| address.parse::<SocketAddr>().ok());
    let kind = arguments.next().and_then(|kind| kind.parse::<Kind>().ok());
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

async fn serve(address: SocketAddr, kind: Kind) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    if matches!(kind, Kind::Unanswered) {
        let listener = socket.listen(1)?;
        // The line has one place more than it was asked for; whoever comes after these is not even refused.
        let line = [TcpStream::connect(address).await?, TcpStream::connect(address).await?];
        tokio::time::sleep(FOR_EVER).await;
        drop((listener, line));
        return Ok(());
    }
    let listener: TcpListener = socket.listen(1_024)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // Whoever calls goes away as it likes.
        tokio::spawn(async move { drop(trouble(stream, kind).await) });
    }
}

async fn trouble(mut stream: TcpStream, kind: Kind) -> io::Result<()> {
    if matches!(kind, Kind::Silent | Kind::Unanswered) {
        tokio::time::sleep(FOR_EVER).await;
        return Ok(());
    }
    // Calls are small enough to come in one piece, or nearly so; how they end does not matter here.
    let mut request = [0; 16 * 1024];
    if stream.read(&mut request).await? == 0 {
        return Ok(());
    }
    if matches!(kind, Kind::Reset) {
        return stream.set_zero_linger();
    }
    stream.write_all(HEAD).await?;
    let (piece, every) = match kind {
        Kind::Trickle => (b"1\r\n \r\n".to_vec(), Duration::from_secs(1)),
        _ => {
            let piece = vec![b' '; PIECE_BYTES];
            ([format!("{PIECE_BYTES:x}\r\n").as_bytes(), &piece, b"\r\n"].concat(), PIECE_EVERY)
        }
    };
    loop {
        stream.write_all(&piece).await?;
        tokio::time::sleep(every).await;
    }
}
