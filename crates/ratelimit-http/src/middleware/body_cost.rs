//! The cost of a request, by its body among others.

use crate::{
    framework::{Framework, RequestHead},
    log_once,
    middleware::{body_counter::BodyCount, config::Config},
};

impl<F: Framework> Config<F> {
    /// Whether the adapter has to count the body of `request` as it is read.
    ///
    /// This is so under three conditions:
    ///
    /// - the cost is the length of the body, and the layer has no function for the cost;
    /// - the length is unknown: there is no `Content-Length`, or a `Transfer-Encoding` beside it;
    /// - no outer layer counts the body: the request's extensions have no [`BodyCount`].
    #[inline]
    pub fn counts_body(&self, request: &F::Request) -> bool {
        if !self.counts_unknown_length(request) {
            return false;
        }
        let count = F::head(request).extension(|_: &BodyCount| ());
        count.is_none()
    }

    /// The count of the body, if it changes the cost of the request.
    #[inline]
    pub(crate) fn body_count(&self, request: &F::Request) -> Option<BodyCount> {
        if !self.counts_unknown_length(request) {
            return None;
        }
        let count = F::head(request).extension(BodyCount::clone);
        count.filter(|count| !count.is_ended())
    }

    /// The cost that the layer computes, or else the policy's, and at least the bytes of a body that was read
    /// already.
    #[inline]
    pub(crate) fn cost_of(&self, request: &F::Request) -> u64 {
        match (&self.cost, self.flags.cost) {
            (Some(cost), _) => cost(request),
            (None, Some(cost)) => cost,
            (None, None) => {
                if self.counts_body(request) {
                    self.warn_once_of_uncounted_body(request);
                }
                let cost = self.policy.cost_of_request(&F::head(request)).get();
                cost.max(self.bytes_of_ended_body(request))
            }
        }
    }

    /// The bytes of a body of unknown length that was read before this layer, by a middleware that buffers it.
    ///
    /// No [`BodyCount`] can charge them afterwards, because it has ended. They are known, so they are charged in
    /// advance, and a body beyond the budget is denied.
    #[inline]
    fn bytes_of_ended_body(&self, request: &F::Request) -> u64 {
        if !self.counts_unknown_length(request) {
            return 0;
        }
        let count = F::head(request).extension(BodyCount::clone);
        let ended = count.filter(BodyCount::is_ended);
        ended.map_or(0, |count| count.bytes())
    }

    /// Whether the cost is the length of a body that the head of the request does not say.
    ///
    /// A chunked body can be longer than a `Content-Length` beside it.
    #[inline]
    fn counts_unknown_length(&self, request: &F::Request) -> bool {
        if !self.flags.counts_bodies || self.cost.is_some() {
            return false;
        }
        let head = F::head(request);
        !head.has_header("content-length") || head.has_header("transfer-encoding")
    }

    /// Logs once that a body costs the policy's cost, not its bytes, because nothing counts it.
    ///
    /// HTTP/1 announces a body. Later versions do not, so a body is assumed by the method.
    fn warn_once_of_uncounted_body(&self, request: &F::Request) {
        let head = F::head(request);
        let has_body = if head.is_http1() {
            head.has_header("transfer-encoding")
        } else {
            matches!(head.method(), "POST" | "PUT" | "PATCH")
        };
        if !has_body {
            return;
        }
        let policy = self.policy.name();
        let warning = F::UNCOUNTED_BODY_HELP;
        if log_once::is_first(policy, warning) {
            tracing::warn!(
                policy,
                "a body without Content-Length costs the cost of the policy, not its bytes: {warning}"
            );
        }
    }
}
