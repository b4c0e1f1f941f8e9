//! Hits under several policies, decided together.

use super::{decision::ModelDecision, hit::ModelHit, spec::Spec, stored_value::Model};

/// How a member decides on a joint hit, in the order in which members are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelRole {
    /// All of these must fit.
    Must,
    /// One of these must fit, if there are any.
    Any,
    /// These deny nothing.
    Watch,
}

/// One member of a joint hit.
#[derive(Clone, Debug)]
pub struct ModelMember {
    /// The number of its budget.
    pub budget: usize,
    /// The limits of its policy.
    pub limits: Vec<Spec>,
    /// The hit.
    pub asked: ModelHit,
    /// Its role.
    pub role: ModelRole,
    /// Whether it only decides.
    pub is_dry: bool,
}

impl ModelMember {
    /// Decides the member on its budget, and charges it if that is possible and meant.
    fn step(&self, models: &mut [Model], now_us: u64, is_charged: bool) -> ModelDecision {
        let model = &mut models[self.budget];
        let foreseen = model.dry_run(&self.limits, now_us, self.asked);
        if self.is_dry || (foreseen.overall.answer.is_allowed() && !is_charged) {
            return foreseen;
        }
        model.hit_with(&self.limits, now_us, self.asked)
    }
}

/// Decides a joint hit: whether it passes, and the decision of each member.
///
/// A joint hit that passes is its members, one after another. Of one that does not, nothing is charged, and a member that
/// does not fit alone is a denied hit.
pub fn hit_joint(
    models: &mut Vec<Model>,
    members: &[ModelMember],
    now_us: u64,
) -> (bool, Vec<ModelDecision>) {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&index| members[index].role);
    let decide_all = |models: &mut Vec<Model>, is_charged: bool| {
        let mut decisions = vec![None; members.len()];
        for &index in &order {
            decisions[index] = Some(members[index].step(models, now_us, is_charged));
        }
        decisions.into_iter().flatten().collect::<Vec<_>>()
    };
    let fits = |decision: &ModelDecision| decision.overall.answer.is_allowed();

    let mut after = models.clone();
    let together = decide_all(&mut after, true);
    let of_role = |role| {
        let members = members.iter().zip(&together);
        members.filter(move |(member, _)| member.role == role)
    };
    let must_fit = of_role(ModelRole::Must).all(|(_, decision)| fits(decision));
    let is_any_there = of_role(ModelRole::Any).count() > 0;
    let any_fits = of_role(ModelRole::Any).any(|(_, decision)| fits(decision));
    if must_fit && (any_fits || !is_any_there) {
        *models = after;
        return (true, together);
    }
    let alone = decide_all(models, false);
    let decisions = together.into_iter().zip(alone).map(|(together, alone)| {
        if fits(&together) || !fits(&alone) {
            alone
        } else {
            together
        }
    });
    (false, decisions.collect())
}
