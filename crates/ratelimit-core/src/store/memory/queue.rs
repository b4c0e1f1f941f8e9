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

/// Something that stands in a queue.
pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
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

    pub(super) fn push_back<T: Linked>(&mut self, slots: &mut Slab<T>, place: u32) {
        *slots[place as usize].links() = Links {
            prev: self.back,
            next: NONE,
        };
        match self.back {
            NONE => self.front = place,
            back => slots[back as usize].links().next = place,
        }
        self.back = place;
    }

    pub(super) fn remove<T: Linked>(&mut self, slots: &mut Slab<T>, place: u32) {
        let Links { prev, next } = std::mem::replace(slots[place as usize].links(), Links::LOOSE);
        match prev {
            NONE => self.front = next,
            prev => slots[prev as usize].links().next = next,
        }
        match next {
            NONE => self.back = prev,
            next => slots[next as usize].links().prev = prev,
        }
    }

    /// Tells its neighbours that a slot now stands at `to`.
    pub(super) fn moved<T: Linked>(&mut self, slots: &mut Slab<T>, to: u32) {
        let Links { prev, next } = *slots[to as usize].links();
        match prev {
            NONE => self.front = to,
            prev => slots[prev as usize].links().next = to,
        }
        match next {
            NONE => self.back = to,
            next => slots[next as usize].links().prev = to,
        }
    }
}
