//! Prefetching: one call that decides a hit and charges further units.

use std::sync::Arc;

use crate::store::redis::{
    call::{self, call_work},
    command::{
        check::{CheckCommand, Scope},
        prefetch::PrefetchCommand,
    },
    connection::work_queue::CallSource,
    execute::Executor,
};
use crate::{
    limit::Limit,
    store::{
        contract::StoreError,
        hit::OwnedHit,
        prefetch::{CannotPrefetch, PrefetchGrant, PrefetchRequest},
    },
};

impl Executor {
    /// Decides a hit and charges further units by one call, which is sent by itself.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Executor::check), and [`StoreError::Refused`] for keys in several hash slots and for limits
    /// that cannot be prefetched.
    pub(in crate::store::redis) async fn prefetch(
        self: Arc<Executor>,
        hit: OwnedHit,
        request: PrefetchRequest,
    ) -> Result<PrefetchGrant, StoreError> {
        let deadline = self.deadline();
        let hit = hit.as_hit();
        let names = self
            .keys
            .key_names(hit.policy.groups(), |group| hit.key_for(group));
        self.wait_first_attempts(&names, deadline).await;
        let mut limits = hit.policy.limits().iter();
        if limits.any(|limit| Limit::not_prefetchable(limit).is_some())
            || !self.router.same_node(&names)
        {
            return Err(StoreError::refused(CannotPrefetch));
        }
        let route = self.route(&names[0])?;
        let policy = hit.policy.shared_name();
        let Some(_permit) = self.in_flight.try_acquire(policy) else {
            return Err(StoreError::Overloaded);
        };
        let check = CheckCommand {
            policy: hit.policy.clone(),
            scope: Scope::Policy,
            params: hit.params(),
            is_denied: false,
            now: self.manual_now(),
        };
        let (source, work) = (CallSource::Hits(Arc::clone(policy)), call_work(0));
        let work = self.acquire_work(&route, &source, work, deadline).await?;
        let command = PrefetchCommand { check, request };
        let grant = call::send(&command, &names, &self.router, route.clone(), deadline);
        self.with_deadline(Some(&route), deadline, work, grant)
            .await
    }
}
