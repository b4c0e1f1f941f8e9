//! Two queues through the slots of a shard, as links between their places.

use super::slab::Slab;

/// No place.
const NONE: u32 = u32::MAX;

/// Where a slot stands in its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    pub(super) const LOOSE: Links = Links {
        prev: NONE,
        next: NONE,
    };
}

/// The front and the back of a queue.
#[derive(Debug)]
pub(super) struct Queue {
    front: u32,
    back: u32,
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue {
            front: NONE,
            back: NONE,
        }
    }

    pub(super) fn front(&self) -> Option<u32> {
        (self.front != NONE).then_some(self.front)
    }

    pub(super) fn push_back(&mut self, links: &mut Slab<Links>, place: u32) {
        links[place as usize] = Links {
            prev: self.back,
            next: NONE,
        };
        match self.back {
            NONE => self.front = place,
            back => links[back as usize].next = place,
        }
        self.back = place;
    }

    pub(super) fn remove(&mut self, links: &mut Slab<Links>, place: u32) {
        let Links { prev, next } = std::mem::replace(&mut links[place as usize], Links::LOOSE);
        match prev {
            NONE => self.front = next,
            prev => links[prev as usize].next = next,
        }
        match next {
            NONE => self.back = prev,
            next => links[next as usize].prev = prev,
        }
    }

    /// Tells its neighbours that a slot now stands at `to`.
    pub(super) fn moved(&mut self, links: &mut Slab<Links>, to: u32) {
        let Links { prev, next } = links[to as usize];
        match prev {
            NONE => self.front = to,
            prev => links[prev as usize].next = to,
        }
        match next {
            NONE => self.back = to,
            next => links[next as usize].prev = to,
        }
    }
}
