//! What changes a mark other than draws: another writer, whose values are put right, and operators.

use super::{
    IS_CONTROL, Mark, MarkNotice, MarkRefusal, MarkTerms, MarkedDatabase, Stored, StoredNumber, WrittenNumbers,
};
use crate::draw::stamp::IdStamp;
use crate::id::identity::{Identity, LaneName};
use crate::id::layout::{Field, Layout};

impl<D: MarkedDatabase> Mark<'_, D> {
    /// Checks whether another writer has set what is stored. Call it before the commit of a
    /// transaction that may have done so. A mark that was set back is raised again. If anything
    /// differs, the next draw loads the marks.
    ///
    /// `written` is what this transaction has set. Only that is set again: another session of the
    /// same restore may be setting the rest, without this lock. Only the protocol sets the local
    /// marks, and what copies another server's values. `identity` is this server's numbers, if it
    /// has any.
    ///
    /// # Errors
    /// The database's own.
    pub fn recheck(
        &self,
        layout: &Layout,
        identity: Option<&Identity>,
        written: &WrittenNumbers,
    ) -> Result<(), D::Error> {
        if IS_CONTROL {
            return Ok(());
        }
        let code = identity.map(|identity| identity.code(layout));
        let is_ours = |stored: &Stored| {
            stored.layout == Some(layout.fingerprint()) && (code.is_none() || stored.identity == code)
        };
        // A copy leaves no trace of what it replaced.
        let untouched = |stored: &Stored| is_ours(stored) && !stored.is_touched() && written.copied_over.is_none();
        if untouched(&self.database.read()?) {
            return Ok(());
        }
        self.locked(true, |marks| {
            let stored = self.database.read()?;
            if untouched(&stored) {
                return Ok(());
            }
            // Take the higher of the two lanes: their writer may have used other worker numbers.
            // Store it at once, even if it was set ahead, because the next dump needs it, and the
            // next restore may set it back.
            let mut mark_ms = stored.highest_ms();
            if let Some(before) = &written.copied_over {
                let known_ms = LaneName::ALL.into_iter().filter_map(|lane| marks.mark_ms(lane)).max();
                mark_ms = mark_ms.max(before.highest_ms()).max(known_ms.unwrap_or(0));
            }
            for lane in LaneName::ALL {
                let (stored_ms, local_ms) = (stored.marks_ms[lane as usize], stored.local_ms[lane as usize]);
                if local_ms < mark_ms {
                    self.database.write(StoredNumber::Local(lane), mark_ms)?;
                }
                if stored_ms < mark_ms && written.marks[lane as usize] {
                    // No report while a dump is restored into a new database, value by value.
                    if stored_ms < local_ms && marks.mark_ms(lane).is_some() {
                        self.database.report(MarkNotice::SetBack { stored_ms, mark_ms });
                    }
                    self.database.write(StoredNumber::Mark(lane), mark_ms)?;
                }
            }
            // A dump of a database in which nothing was drawn sets neither, but ids that were drawn
            // here have a layout and numbers. A copy must not replace them by those of another
            // server's ids.
            let (layout_before, code_before) =
                written.copied_over.map_or((None, None), |before| (before.layout, before.identity));
            let own_layout =
                layout_before.or_else(|| (stored.layout.is_none() && mark_ms > 0).then(|| layout.fingerprint()));
            if let Some(own) = own_layout.filter(|own| written.layout && stored.layout != Some(*own)) {
                self.database.write(StoredNumber::Layout, own)?;
            }
            let own_code = code_before.or(code.filter(|_| stored.identity.is_none() && mark_ms > 0));
            if let Some(own) = own_code.filter(|own| written.identity && stored.identity != Some(*own)) {
                self.database.write(StoredNumber::Identity, own)?;
            }
            // Only a copy sets the fleet.
            let fleet = written.copied_over.and_then(|before| before.fleet);
            if let Some(own) = fleet.filter(|own| stored.fleet != Some(*own)) {
                self.database.write(StoredNumber::Fleet, own)?;
            }
            self.database.flush()?;
            // Even if a mark was set back: what was found may be above the lane, and rows up to
            // there were restored.
            marks.forget();
            Ok(())
        })?;
        Ok(())
    }

    /// Ensures that from now on no id is drawn in this database whose tick ends at or before
    /// `end_ms`. With `force`, `end_ms` may lie any distance ahead of the clock.
    ///
    /// # Errors
    /// [`MarkRefusal::OtherLayout`], [`MarkRefusal::FarAhead`] unless forced, and the database's
    /// own.
    pub fn advance(&self, layout: &Layout, terms: &MarkTerms, end_ms: i64, force: bool) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            let stored = self.database.read()?;
            self.require_layout(layout, &stored)?;
            let now_ms = self.database.now_ms();
            let (id_ms, most_ms) = (end_ms - layout.unit().ms(), terms.max_advance_ms());
            if !force && id_ms.saturating_sub(now_ms) > most_ms {
                return Err(MarkRefusal::FarAhead { id_ms, now_ms, most_ms }.into());
            }
            if stored.layout.is_none() {
                // This layout has read `end_ms` from an id.
                self.database.write(StoredNumber::Layout, layout.fingerprint())?;
            }
            let reachable = end_ms <= now_ms.saturating_add(terms.max_borrow_ms);
            let mut as_published = true;
            for lane in LaneName::ALL {
                let stored_ms = if stored.is_touched() { stored.highest_ms() } else { stored.mark_ms(lane) };
                let mark_ms = end_ms.max(stored_ms).max(marks.mark_ms(lane).unwrap_or(0));
                self.write_mark(lane, mark_ms)?;
                as_published &= marks.mark_ms(lane).is_none_or(|published_ms| published_ms == mark_ms);
            }
            self.database.flush()?;
            if as_published && reachable {
                for lane in LaneName::ALL.into_iter().filter(|lane| marks.mark_ms(*lane).is_some()) {
                    self.generator.raise(lane, layout, end_ms);
                }
            } else {
                // The next draw loads the marks, which waits for the clock, or refuses.
                marks.forget();
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Stores that nothing was drawn, for a server that has a new number, or that leases its
    /// number: a lease begins where the one before has ended, whatever the mark.
    ///
    /// # Errors
    /// [`MarkRefusal::InUse`], [`MarkRefusal::SameNumber`], [`MarkRefusal::OtherLayout`],
    /// [`MarkRefusal::OtherFleet`], and the database's own.
    pub fn reset(&self, drawing: &IdStamp) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            if LaneName::ALL.into_iter().any(|lane| marks.mark_ms(lane).is_some()) {
                return Err(MarkRefusal::InUse.into());
            }
            let stored = self.database.read()?;
            self.require_layout(drawing.layout(), &stored)?;
            self.require_fleet(drawing, &stored)?;
            // In a layout without numbers no server has a new one, so the decision is the
            // operator's.
            let numbered =
                [Field::Worker, Field::Datacenter].into_iter().any(|field| drawing.layout().max_of(field).is_some());
            let old = stored.identity.and_then(|code| Identity::of_code(drawing.layout(), code).ok());
            let overlaps = old.is_some_and(|old| old.overlaps(drawing.identity()));
            if numbered && overlaps && !drawing.is_leased() {
                return Err(MarkRefusal::SameNumber.into());
            }
            // The numbers are written first: if a crash leaves only these, the marks still hold.
            self.database.write(StoredNumber::Identity, drawing.code())?;
            for lane in LaneName::ALL {
                self.write_mark(lane, 0)?;
            }
            self.database.flush()
        })?;
        Ok(())
    }

    /// Lets the fleet that leases this server's numbers draw ids in the database from now on, above
    /// all ids that can have been drawn there by the clock. The next draw may have to wait for the
    /// next tick. Does nothing for a configured number.
    ///
    /// # Errors
    /// [`MarkRefusal::Jumped`], and the database's own.
    pub fn accept_fleet(&self, drawing: &IdStamp, terms: &MarkTerms) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            let stored = self.database.read()?;
            let Some(fleet) = drawing.fleet().filter(|fleet| stored.fleet != Some(*fleet)) else { return Ok(()) };
            let (now_ms, _) = self.read_clocks(terms)?;
            let reached_ms = now_ms.saturating_add(terms.max_borrow_ms + drawing.layout().unit().ms());
            for lane in LaneName::ALL {
                self.write_mark(lane, reached_ms.max(stored.highest_ms()))?;
            }
            // The fleet is written last: if a crash leaves only the marks, it is still refused.
            self.database.write(StoredNumber::Fleet, fleet)?;
            self.database.flush()?;
            marks.forget();
            Ok(())
        })?;
        Ok(())
    }

    /// Stores the fleet from whose registry the database gets dense values, if none is stored.
    ///
    /// # Errors
    /// The database's own, and [`MarkRefusal::OtherFleet`].
    pub fn adopt_fleet(&self, fleet: i64) -> Result<(), D::Error> {
        self.locked(true, |_| match self.database.read()?.fleet {
            Some(stored) if stored == fleet => Ok(()),
            Some(stored) => Err(MarkRefusal::OtherFleet { stored, fleet }.into()),
            None => {
                self.database.write(StoredNumber::Fleet, fleet)?;
                self.database.flush()
            }
        })?;
        Ok(())
    }

    /// Makes `layout` the database's from now on.
    ///
    /// # Errors
    /// The database's own.
    pub fn accept_layout(&self, layout: &Layout) -> Result<(), D::Error> {
        self.locked(true, |marks| {
            if self.database.read()?.layout != Some(layout.fingerprint()) {
                self.database.write(StoredNumber::Layout, layout.fingerprint())?;
                self.database.flush()?;
                marks.forget();
            }
            Ok(())
        })?;
        Ok(())
    }
}
