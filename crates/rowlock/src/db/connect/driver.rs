//! The task that moves bytes for one connection, and how one learns of its end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use super::Notification;
use super::error::describe;

/// The running task of one connection. Ends by itself when the client is dropped.
#[derive(Debug)]
pub(super) struct Driver {
    task: AbortHandle,
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
        let task = tokio::spawn(async move {
            let end = drive(connection, notifications).await;
            sender.send_replace(Some(end.into()));
        });
        Self {
            task: task.abort_handle(),
            reason,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.task.is_finished() || self.reason.borrow().is_some()
    }

    /// Waits for the end and says why it came.
    pub(super) async fn closed(&self) -> Arc<str> {
        let mut reason = self.reason.clone();
        match reason.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(given_up),
            // The task was aborted.
            Err(_) => given_up(),
        }
    }

    /// Closes the socket at once. Requests under way fail.
    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

fn given_up() -> Arc<str> {
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
