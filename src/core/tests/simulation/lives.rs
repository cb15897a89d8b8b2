//! What a server has outside of the memory that a crash loses: its page, from which the next life
//! goes on with the lease. A postmaster that is killed may leave **orphans**: its other processes,
//! which go on beside those of the next one. They are the server as it was, and the next one is
//! another server here, with a log of its own.

use std::rc::Rc;

use snowflake_core::draw::generator::Generator;
use snowflake_core::fleet::lease::Holder;
use snowflake_core::fleet::page::{self, Beginning, Kept, NextLife, Page, PageFailure};
use snowflake_core::id::identity::LaneName;

use crate::promises::{Guarantee, Lie};
use crate::server::{OwnPage, ReachedPage, Server, Shared};
use crate::world::World;

impl World {
    /// Whether a server has a page. Values of tags are lost in each crash, and their ledger knows
    /// no life that goes on.
    fn has_page(&self, server: &Server) -> bool {
        server.leases.get() && !self.has_tags && !self.lies(Lie::SameHolder)
    }

    /// What has become of the page when a server starts.
    pub fn page_at_start(&self, server: &Rc<Server>, event: &'static str) {
        if server.page().bytes.get().is_none() || !self.has_page(server) {
            return;
        }
        match self.random.below(if self.crashes { 40 } else { 10 }) {
            0 => {
                self.count("page lost");
                // Its orphans have it still.
                server.page.take();
            }
            1 => {
                self.count("page broken");
                self.breaks_page(server);
            }
            2 => {
                // The server starts again much later.
                self.count("page older");
                let length_ms = self.fleet.as_ref().map_or(0, |fleet| fleet.length_ms());
                self.pass(self.random.pick(&[length_ms / 4, length_ms, length_ms * 2]));
            }
            _ => self.count(event),
        }
    }

    /// Returns a server's page, as one of its processes reaches it.
    pub fn reaches_page(&self, server: &Rc<Server>) -> ReachedPage {
        let is_own = !server.is_orphan.get() || self.lies(Lie::BrokenIsOwn);
        let page = server.page();
        let stale = page.bytes.get().filter(|_| self.lies(Lie::NoWriterLock));
        if stale.is_some() {
            self.meanwhile(server);
        }
        ReachedPage { page, is_own, stale }
    }

    /// Returns a number for what a page is for. Another registry knows nothing of the lease.
    fn made_for(server: &Server, shared: &Shared) -> u64 {
        server.config.get().layout.fingerprint() as u64 ^ u64::from(shared.elsewhere)
    }

    /// Begins a life of shared memory: it goes on from the server's page, if there is one.
    pub fn goes_on(&self, server: &Server, shared: &mut Shared) {
        if !self.has_page(server) {
            return;
        }
        shared.life = self.event();
        let layout = server.config.get().layout;
        let next = NextLife {
            made_for: Self::made_for(server, shared),
            life: shared.life,
            now_ms: server.now_ms(self.time_ms()),
            max_borrow_ms: self.max_borrow_ms,
        };
        let store = ReachedPage { page: server.page(), is_own: true, stale: None };
        let begun = match store.page.bytes.get() {
            Some(_) => page::begin(&store, &next).expect("there is a page"),
            None => return page::make(&store, &next).expect("a page can be made"),
        };
        self.tell(|| format!("server {}: its page gives {begun:?}", server.number));
        let Ok(Beginning { begins_ms, kept: Kept { holder, secret } }) = begun else {
            return self.count("page is void");
        };
        self.count("goes on");
        let before = store.page.life.take().unwrap_or_else(|| server.shared());
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

    /// Notes which life has begun with a server's page.
    pub fn has_begun(&self, server: &Server) {
        if self.has_page(server) {
            server.page().life.replace(Some(server.shared()));
        }
    }

    /// Notes in the page of a server what its life holds. Returns whether the life may go on.
    pub fn notes_in_page(&self, server: &Rc<Server>, shared: &Shared, holder: &Holder) -> bool {
        let kept = Kept { holder: *holder, secret: shared.secret.get() };
        let life = if self.lies(Lie::NoFence) { server.shared().life } else { shared.life };
        match page::keep(&self.reaches_page(server), life, Self::made_for(server, shared), &kept) {
            Ok(_) | Err(PageFailure::Store(_)) => true,
            Err(PageFailure::Fenced) => {
                self.is_fenced(server, shared);
                false
            }
        }
    }

    /// A process of a server is fenced, which must be an orphan.
    pub fn is_fenced(&self, server: &Rc<Server>, shared: &Shared) {
        if server.is_orphan.get() {
            self.count("orphan fenced");
        } else if !shared.gone.get() {
            self.broken(Guarantee::Alone, || format!("server {} runs, and is fenced", server.number));
        }
    }

    /// Kills the postmaster of a server, sometimes, and lets another one go on in its directory
    /// while the other processes draw. Returns whether it has.
    pub fn leaves_orphans(&self, server: &Rc<Server>) -> bool {
        let shared = server.shared();
        let is_member = self.has_page(server) && shared.leases && !server.is_standby();
        if !is_member || self.settles.get() || self.is_restoring_any() || !self.random.one_in(3) {
            return false;
        }
        self.count("orphans");
        server.is_orphan.set(true);
        let (log, seen) = {
            let log = server.log.borrow();
            let end = self.random.of(log.flushed() as i64..=log.inserted() as i64) as usize;
            (log.copy(end), server.seen.borrow().clone())
        };
        let (config, offset_ms) = (server.config.get(), server.offset_ms.get());
        self.add_server(log, config, offset_ms, seen, None);
        let next = self.servers.borrow().last().expect("it was added").clone();
        self.tell(|| format!("server {} loses its postmaster; {} goes on", server.number, next.number));
        next.leases.set(true);
        next.elsewhere.set(shared.elsewhere);
        next.latest_ms.set(server.latest_ms.get());
        next.stands_at_ms.set(server.stands_at_ms.get());
        next.went_back.set(server.went_back.get());
        next.ever_issued.borrow_mut().extend(&*server.ever_issued.borrow());
        next.predecessors_issued.borrow_mut().extend(&*server.predecessors_issued.borrow());
        next.settled.iter().zip(&server.settled).for_each(|(next, before)| next.set(before.get()));
        for standby in self.servers.borrow().iter() {
            let mut of = standby.standby_of.borrow_mut();
            if of.as_ref().is_some_and(|of| Rc::ptr_eq(of, server)) {
                *of = Some(next.clone());
            }
        }
        *next.page.borrow_mut() = server.page();
        *next.shared.borrow_mut() = shared;
        if self.random.one_in(2) {
            self.set_clock(&next);
        }
        self.page_at_start(&next, "crash with page");
        self.start(&next);
        if self.random.one_in(4) {
            self.count("page broken meanwhile");
            self.breaks_page(&next);
        }
        true
    }

    /// Changes a byte of a server's page. A broken one stays broken: a second change could undo the
    /// first one.
    fn breaks_page(&self, server: &Server) {
        if let Some(mut bytes) = server.page().bytes.get().filter(|bytes| Page::decode(bytes).is_some()) {
            bytes[self.random.below(bytes.len())] ^= 1;
            server.page().bytes.set(Some(bytes));
        }
    }

    /// Ends a server that has no postmaster any more. Returns whether it is one.
    pub fn ends_as_orphan(&self, server: &Rc<Server>) -> bool {
        let is_orphan = server.is_orphan.get();
        if is_orphan {
            self.tell(|| format!("the orphans of server {} end", server.number));
            server.shared().gone.set(true);
            self.servers.borrow_mut().retain(|one| !Rc::ptr_eq(one, server));
        }
        is_orphan
    }

    /// Gives the server that was made last the page of the one that it is a copy of, for lies.
    pub fn lie_about_copy(&self, original: &Rc<Server>) {
        let copy = self.servers.borrow().last().expect("it was added").clone();
        let page = match self.lie {
            Some(Lie::NoPostmasterLock) => original.page(),
            Some(Lie::CopiedPage) => Rc::new(OwnPage { bytes: original.page().bytes.clone(), ..OwnPage::default() }),
            _ => return,
        };
        if self.has_page(&copy) && page.bytes.get().is_some() {
            *copy.page.borrow_mut() = page;
            self.start(&copy);
        }
    }
}
