//! The decision about the members of a request.

use std::{error::Error, fmt, future::Future, time::Instant};

use ratelimit_core::{
    JointVerdict, Limiter, Verdict,
    store::{Hit, JointHit, Overdraft, StoreError},
};

use crate::{charge::Charge, member::Member, request::ResolvedRequest};

/// Charges the members of a request in one step, all or nothing, and returns the verdict of each.
///
/// - A request or a look that denies leaves all members uncharged.
/// - Readings never deny each other: they are recorded also beyond their limits. Beside requests and looks, a reading that
///   exceeds its limit denies them. Then the readings are recorded in a second call, and nothing else is charged.
/// - After `deadline` the failure modes of the policies decide, and a shared store charges nothing.
/// - Credits are only read here: [`give_back`] gives their units back.
pub async fn decide(
    limiter: &Limiter,
    resolved: &ResolvedRequest<'_>,
    deadline: Option<Instant>,
) -> Vec<Verdict> {
    let members = resolved.members();
    // A limit of 0 denies the request whatever is left elsewhere, so the members are only read.
    let is_blocked = !resolved.passes(|_| false);
    let hit = |member| {
        let hit = hit_until(member, deadline);
        if is_blocked { hit.dry_run() } else { hit }
    };
    match members {
        [] => return Vec::new(),
        // Single hits are sent in batches, joint hits are not. Prefetched units would be used by some requests only.
        [member] if member.tier().prefetch().is_none() => {
            return vec![limiter.check_hit(hit(member)).await];
        }
        _ => {}
    }
    let own =
        |member| JointHit::new(hit(member)).role(resolved.joint_role(member, member.is_reading()));
    let mut joint: Vec<JointHit<'_>> = members.iter().map(own).collect();
    let readings = || {
        let all = members.iter().enumerate();
        all.filter(|(_, member)| member.is_reading())
    };
    if resolved.is_mixed() {
        joint.extend(readings().map(|(_, member)| {
            let dry_run = hit(member).overdraft(Overdraft::Refused).dry_run();
            JointHit::new(dry_run).role(resolved.joint_role(member, false))
        }));
    }
    let verdict = check_joint(limiter, &joint).await;
    let mut verdicts: Vec<Verdict> = verdict
        .members
        .into_iter()
        .map(|member| member.verdict)
        .collect();
    let dry_runs = verdicts.split_off(members.len());
    if verdict.is_allowed || dry_runs.is_empty() {
        return verdicts;
    }
    let is_over = |index: usize| {
        let member = &members[index];
        !member.is_reading() && member.is_over(&verdicts[index])
    };
    if resolved.passes(is_over) {
        let recorded: Vec<JointHit<'_>> = readings().map(|(_, member)| own(member)).collect();
        // The dry runs have decided, so they are the answer. The limiter counts an outage here as any other.
        let _ = check_joint(limiter, &recorded).await;
    }
    for ((index, _), dry_run) in readings().zip(dry_runs) {
        verdicts[index] = dry_run;
    }
    verdicts
}

/// Gives the units of the credits of a request back; `None` without credits.
///
/// The future borrows nothing, so it can go on when the caller has left.
///
/// # Errors
///
/// The last [`StoreError`]: the store did not answer, and nothing or not all was given back.
pub fn give_back(
    limiter: &Limiter,
    resolved: &ResolvedRequest<'_>,
) -> Option<impl Future<Output = Result<(), StoreError>> + Send + use<>> {
    let credits = resolved.members().iter();
    let credits: Vec<Member> = credits
        .filter(|member| member.is_credit())
        .cloned()
        .collect();
    let limiter = limiter.clone();
    (!credits.is_empty()).then_some(async move {
        let mut result = Ok(());
        for member in credits {
            // Units that a process has prefetched count as spent, and would be given back.
            if member.tier().prefetch().is_some() {
                result = Err(StoreError::refused(PrefetchedCredit));
            } else if let Charge::Credit(units) = member.charge {
                let credit = limiter.credit(member.tier(), &member.keys, units).await;
                result = credit.map(drop).and(result);
            }
        }
        result
    })
}

/// The hit of a member with the deadline of the caller.
fn hit_until(member: &Member, deadline: Option<Instant>) -> Hit<'_> {
    let hit = member.hit();
    deadline.map_or(hit, |deadline| hit.deadline(deadline))
}

/// The verdict of a joint hit of the members of a request, which are few enough.
async fn check_joint(limiter: &Limiter, joint: &[JointHit<'_>]) -> JointVerdict {
    let check = limiter.check_joint(joint);
    check.expect("a resolved request is not too large").await
}

/// The source of the error for negative hits under a policy with prefetch.
#[derive(Debug)]
struct PrefetchedCredit;

impl fmt::Display for PrefetchedCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy with prefetch gives nothing back")
    }
}

impl Error for PrefetchedCredit {}
