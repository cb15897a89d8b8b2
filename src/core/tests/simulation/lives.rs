//! What a server has outside of the memory that a crash loses: its page, from which the next life
//! goes on with the lease.

use std::rc::Rc;

use snowflake_core::draw::generator::Generator;
use snowflake_core::fleet::lease::Holder;
use snowflake_core::fleet::page::{self, Beginning, Kept, NextLife};
use snowflake_core::id::identity::LaneName;

use crate::promises::Lie;
use crate::server::{Server, Shared};
use crate::world::World;

impl World {
    /// Whether a server has a page. Values of tags are lost in each crash, and their ledger knows
    /// no life that goes on.
    fn has_page(&self, server: &Server) -> bool {
        server.leases.get() && !self.has_tags && !self.lies(Lie::SameHolder)
    }

    /// What becomes of the page when a server crashes.
    pub fn page_at_crash(&self, server: &Rc<Server>) {
        let Some(mut bytes) = server.page.0.get().filter(|_| self.has_page(server)) else { return };
        match self.random.below(if self.crashes { 40 } else { 10 }) {
            0 => {
                self.count("page lost");
                server.page.0.take();
            }
            1 => {
                self.count("page broken");
                bytes[self.random.below(bytes.len())] ^= 1;
                server.page.0.set(Some(bytes));
            }
            2 => {
                // The server starts again much later.
                self.count("page older");
                let length_ms = self.fleet.as_ref().map_or(0, |fleet| fleet.length_ms());
                self.pass(self.random.pick(&[length_ms / 4, length_ms, length_ms * 2]));
            }
            _ => self.count("crash with page"),
        }
    }

    /// Begins a life of shared memory: it goes on from the server's page, if there is one.
    pub fn goes_on(&self, server: &Server, shared: &mut Shared) {
        if !self.has_page(server) {
            return;
        }
        shared.life = self.event();
        let layout = server.config.get().layout;
        let next = NextLife {
            made_for: layout.fingerprint() as u64,
            life: shared.life,
            now_ms: server.now_ms(self.time_ms()),
            max_borrow_ms: self.max_borrow_ms,
        };
        let begun = match server.page.0.get() {
            Some(_) => page::begin(&server.page, &next).expect("there is a page"),
            None => return page::make(&server.page, &next).expect("a page can be made"),
        };
        self.tell(|| format!("server {}: its page gives {begun:?}", server.number));
        let Ok(Beginning { begins_ms, kept: Kept { holder, secret } }) = begun else {
            return self.count("page is void");
        };
        self.count("goes on");
        let before = server.shared();
        // The checks take it for the same memory, which must not draw anything twice.
        *shared = Shared {
            life: shared.life,
            was_copied: before.was_copied.clone(),
            answers_since_copy: before.answers_since_copy.clone(),
            copied_until_ms: before.copied_until_ms.clone(),
            holders: before.holders.clone(),
            reached_ms: before.reached_ms.clone(),
            greatest: before.greatest.clone(),
            ..Shared::new(Generator::new(), shared.leases, shared.elsewhere, holder, before.memory)
        };
        shared.secret.set(if self.lies(Lie::OtherSecret) { !secret } else { secret });
        if !self.lies(Lie::LanesNotRaised) {
            LaneName::ALL.into_iter().for_each(|lane| shared.generator.raise(lane, &layout, begins_ms));
        }
    }

    /// Notes in the page of a server what its life holds. Returns whether the life may go on.
    pub fn notes_in_page(&self, server: &Server, shared: &Shared, holder: &Holder) -> bool {
        if server.page.0.get().is_none() {
            return true;
        }
        let kept = Kept { holder: *holder, secret: shared.secret.get() };
        let made_for = server.config.get().layout.fingerprint() as u64;
        let life = if self.lies(Lie::NoFence) { server.shared().life } else { shared.life };
        page::keep(&server.page, life, made_for, &kept).is_ok()
    }
}
