//! The connection of the full scans, which claims may use while those rest. One statement at a time: whoever waits for it never waits for more than one
//! statement of somebody else.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::db::Link;

/// A connection that is lent out.
#[derive(Debug, Clone)]
pub(super) struct Spare(Arc<Mutex<Link>>);

/// It, for as long as this lives.
#[derive(Debug)]
pub(super) struct SpareLink(OwnedMutexGuard<Link>);

impl Spare {
    pub(super) fn new(link: Link) -> Self {
        Self(Arc::new(Mutex::new(link)))
    }

    /// Waits until nobody else uses it. First come, first served.
    pub(super) async fn wait(&self) -> SpareLink {
        SpareLink(self.0.clone().lock_owned().await)
    }

    /// Takes it, if nobody uses it or waits for it, and it is connected.
    pub(super) fn take(&self) -> Option<SpareLink> {
        let link = self.0.clone().try_lock_owned().ok()?;
        link.is_up().then_some(SpareLink(link))
    }
}

impl Deref for SpareLink {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}
