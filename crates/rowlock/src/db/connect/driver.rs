//! The task that moves bytes for one connection, and how one learns of its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::Notification;
use super::error::describe;

/// The running task of one connection. Ends by itself when the client is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    given_up: CancellationToken,
    reason: watch::Receiver<Option<Arc<str>>>,
}

impl Driver {
    pub(super) fn spawn<S, T>(
        connection: tokio_postgres::Connection<S, T>,
        notifications: Option<mpsc::UnboundedSender<Notification>>,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, reason) = watch::channel(None);
        let given_up = CancellationToken::new();
        let stop = given_up.clone();
        tokio::spawn(async move {
            let work = drive(connection, notifications);
            let end = stop.run_until_cancelled(work).await;
            sender.send_replace(Some(end.map_or_else(given_up_reason, Into::into)));
        });
        Self { given_up, reason }
    }

    pub(super) fn is_closed(&self) -> bool {
        // The channel closes without a reason if the runtime drops the task.
        self.given_up.is_cancelled()
            || self.reason.has_changed().is_err()
            || self.reason.borrow().is_some()
    }

    /// Waits for the end and says why it came.
    pub(super) async fn closed(&self) -> Arc<str> {
        let mut reason = self.reason.clone();
        match reason.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(given_up_reason),
            Err(_) => given_up_reason(),
        }
    }

    /// Closes the socket at once. Requests under way fail.
    pub(super) fn abort(&self) {
        self.given_up.cancel();
    }
}

fn given_up_reason() -> Arc<str> {
    "it was given up".into()
}

async fn drive<S, T>(
    connection: tokio_postgres::Connection<S, T>,
    notifications: Option<mpsc::UnboundedSender<Notification>>,
) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = pin!(connection);
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(message))) => {
                if let Some(sender) = &notifications {
                    // A receiver that is gone does not want them any more.
                    let _ = sender.send(Notification {
                        channel: message.channel().to_owned(),
                        payload: message.payload().to_owned(),
                    });
                }
            }
            Some(Ok(AsyncMessage::Notice(notice))) => {
                tracing::debug!(severity = notice.severity(), "{}", notice.message());
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return describe(&error),
            None => return "it was closed".to_owned(),
        }
    }
}
