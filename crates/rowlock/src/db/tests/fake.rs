//! A server made of a few bytes, to say what a real one cannot be brought to say.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a fake server answers to a log-in.
pub(super) enum Answer {
    Refuse {
        code: &'static str,
        message: &'static str,
    },
    /// Lets the client in and gives its set-up query this row.
    Facts([Option<&'static str>; 4]),
}

/// Starts a server that answers every start-up message by the given rule; gives its port.
pub(super) async fn serve(rule: fn(startup: &str) -> Answer) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // A client may hang up when it has heard enough.
            let _ = talk(socket, rule).await;
        }
    });
    port
}

async fn talk(mut socket: TcpStream, rule: fn(&str) -> Answer) -> std::io::Result<()> {
    let startup = read_body(&mut socket).await?;
    match rule(&String::from_utf8_lossy(&startup)) {
        Answer::Refuse { code, message } => {
            let fields = format!("SFATAL\0C{code}\0M{message}\0\0");
            socket.write_all(&message_of(b'E', fields.as_bytes())).await
        }
        Answer::Facts(row) => {
            socket.write_all(&message_of(b'R', &[0, 0, 0, 0])).await?;
            socket.write_all(&message_of(b'Z', b"I")).await?;
            socket.read_u8().await?;
            read_body(&mut socket).await?;
            socket.write_all(&answer_row(row)).await
        }
    }
}

async fn read_body(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(socket.read_u32().await?).unwrap();
    let mut body = vec![0; length.saturating_sub(4)];
    socket.read_exact(&mut body).await?;
    Ok(body)
}

fn message_of(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

fn answer_row(row: [Option<&str>; 4]) -> Vec<u8> {
    let columns = u16::try_from(row.len()).unwrap().to_be_bytes();
    let mut description = columns.to_vec();
    let mut data = columns.to_vec();
    for value in row {
        // A name, then 18 bytes about a type, which a simple query does not look at.
        description.extend(b"column\0");
        description.extend([0; 18]);
        match value {
            None => data.extend((-1_i32).to_be_bytes()),
            Some(text) => {
                data.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                data.extend(text.as_bytes());
            }
        }
    }
    [
        message_of(b'T', &description),
        message_of(b'D', &data),
        message_of(b'C', b"SELECT 1\0"),
        message_of(b'Z', b"I"),
    ]
    .concat()
}
