//! The text of the metrics, shared by those who ask for it at the same time.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{sync::Mutex, task::JoinError};

use super::{MetricsHandle, render};

/// The age of a text that a caller may get, for each text beyond the first that is still being sent.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Texts that are being sent, beyond which a caller gets the last one.
const MAX_TEXTS: u32 = 2;

/// Renders the metrics, one rendering at a time.
///
/// - A caller gets a text whose rendering began after the call, and shares it with all who called before it began.
/// - While two texts are still being sent, a caller may get the last one if it is not older than five seconds, and five more for
///   each further text. So clients that do not read hold a few texts, and not one each.
/// - The memory of a text is free when it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedRendering(Arc<Mutex<Vec<Weak<Rendering>>>>);

#[derive(Debug)]
struct Rendering {
    began: Instant,
    text: String,
}

struct SharedText(Arc<Rendering>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

impl SharedRendering {
    /// The metrics of this moment.
    pub(crate) async fn get(&self, handle: &MetricsHandle) -> Result<Bytes, JoinError> {
        let handle = handle.clone();
        self.get_or_render(Instant::now(), move || render(&handle))
            .await
    }

    async fn get_or_render(
        &self,
        called: Instant,
        render: impl FnOnce() -> String + Send + 'static,
    ) -> Result<Bytes, JoinError> {
        let mut texts = Arc::clone(&self.0).lock_owned().await;
        texts.retain(|text| text.strong_count() > 0);
        let last = texts.last().and_then(Weak::upgrade);
        let max_age = match u32::try_from(texts.len()) {
            Ok(count @ MAX_TEXTS..) => MAX_AGE * (count - 1),
            _ => Duration::ZERO,
        };
        let serves = |text: &Arc<Rendering>| text.began >= called || text.began.elapsed() < max_age;
        if let Some(text) = last.filter(serves) {
            return Ok(Bytes::from_owner(SharedText(text)));
        }
        // The lock is held by the work, also if the caller has left.
        let rendered = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let text = Arc::new(Rendering {
                began,
                text: render(),
            });
            texts.push(Arc::downgrade(&text));
            text
        });
        let text = rendered.await?;
        Ok(Bytes::from_owner(SharedText(text)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    /// Counts its renderings.
    #[derive(Default)]
    struct Counted {
        shared: SharedRendering,
        renderings: Arc<AtomicUsize>,
    }

    impl Counted {
        async fn get(&self, called: Instant) -> Bytes {
            let renderings = Arc::clone(&self.renderings);
            let render = move || renderings.fetch_add(1, Ordering::SeqCst).to_string();
            self.shared.get_or_render(called, render).await.unwrap()
        }
    }

    #[tokio::test]
    async fn concurrent_callers_share_a_text_that_began_after_their_calls() {
        let metrics = Counted::default();
        let called = Instant::now();

        let texts = join_all((0..100).map(|_| metrics.get(called))).await;

        assert_eq!(metrics.renderings.load(Ordering::SeqCst), 1);
        assert_eq!(texts[0], "0");
        assert_eq!(metrics.get(Instant::now()).await, "1");
    }

    #[tokio::test]
    async fn texts_that_are_not_taken_are_few() {
        let metrics = Counted::default();
        let mut untaken = Vec::new();

        for _ in 0..100 {
            untaken.push(metrics.get(Instant::now()).await);
        }

        assert_eq!(metrics.renderings.load(Ordering::SeqCst), 2);
        drop(untaken);
        assert_eq!(metrics.get(Instant::now()).await, "2");
    }
}
