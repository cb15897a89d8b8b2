//! What must hold whatever happens, and what is done wrong on purpose, to show that the checks
//! notice it.

/// A promise of the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// One running server never issues an id twice. Nor do its successors on the same data
    /// directory, if their clock is never set back, and its memory was not copied.
    G0,
    /// No id is drawn that the copy holds. In every prefix of the log, the mark covers every row.
    G1,
    /// After a crash, no id is drawn that a client has seen. A copy draws none that its mark has
    /// covered. Where an operator has accepted another fleet since, that holds if the clock was not
    /// set back.
    G2,
    /// A standby that is promoted after its primary has died, with a clock that is not behind,
    /// draws no id that the primary has drawn. This holds for every database, whatever the standby
    /// had received.
    Failover,
    /// When an id is drawn with a configured number, a mark at or after the end of its tick has
    /// been flushed (I3).
    Flushed,
    /// An id is greater than all ids with the same numbers that must not come again.
    Order,
    /// While a server without backup workers runs, an id is greater than every one whose draw had
    /// returned before its own began, whatever the databases and the numbers. On one server, the
    /// values of a tag ascend in the order drawn.
    Ascending,
    /// No id is drawn at or below one that was passed to `snowflake_advance`.
    Advance,
    /// An id that is passed to `snowflake_advance` lies no further ahead of the clock than the
    /// clock may jump, unless it is forced.
    Ahead,
    /// The mark is reset only with another number or a leased one, and before it is in use.
    Reset,
    /// No id is drawn at or below a settled id that a client has got from this data directory, or
    /// that a reader has stored in this copy of the database. On one data directory, the settled id
    /// never falls. (G4, through restarts, crashes and promotions.) With a backup lane, settled ids
    /// count only from when the stored numbers had none: nothing is written when one is returned.
    Settled,
    /// No id is drawn with another layout than before.
    Layout,
    /// With a right clock, no session is refused or waits longer than the mark runs ahead, and the
    /// mark does not run away.
    Bounded,
    /// No two servers of a fleet draw the same id, nor does one draw it twice. An id belongs to the
    /// fleet of its database.
    G3,
    /// No two holders know of leases of one number that overlap.
    R1,
    /// An id's tick lies wholly within the lease that its server holds.
    R2,
    /// No server stops to draw because of another one that has its number, unless its memory was
    /// copied, or the other one's.
    Alone,
    /// With right clocks and a registry that answers, every server has a number after a freeze. It
    /// draws from every tag that has values, and as high as a session wishes.
    Live,
    /// An operator resets the settings of a fleet only when all of its leases have ended.
    Idle,
    /// No value of a tag is drawn twice.
    Unique,
    /// No block overlaps one that a server has had.
    Apart,
    /// A value is drawn only by a server that the registry has given it to, and for its own tag.
    Granted,
    /// A crash loses what is left of two blocks of a tag at most. Blocks whose answers were lost
    /// do not count.
    TwoBlocks,
    /// What is left at a clean stop is given back, except before a block that was reserved later.
    GivenBack,
    /// A block has as many values as the tag's steps permit.
    Steps,
    /// No server says that the registry has forgotten something, unless it has, and nothing shows
    /// it.
    Calm,
    /// A tag that does not jump stops once when the registry may have forgotten something: not
    /// again after an operator has said where it goes on.
    Once,
    /// No block lies below the next value that an operator has set, unless the registry may have
    /// forgotten that.
    Raised,
}

/// What a simulation does wrong on purpose, to show that the checks notice it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// A flush makes nothing durable.
    NoFlush,
    /// A written mark reaches the log after it is published.
    LateLog,
    /// A draw does not look at the mark.
    NoLimit,
    /// A session that knows its tick does not look at the mark.
    KeptTick,
    /// A written mark does not run ahead.
    NoLookAhead,
    /// The first read after a start finds no marks.
    NothingStored,
    /// The stored numbers always equal the server's own; for a reset, there are none.
    NoIdentity,
    /// The stored layout always equals the server's own.
    NoLayout,
    /// Each backend has its own generator.
    OwnGenerator,
    /// The lock keeps no session out.
    NoLock,
    /// No session checks what a restored dump has written.
    NoRecheck,
    /// What copies another server's sequences does not remember what they held before.
    NothingRemembered,
    /// Published marks survive a crash.
    MarksSurvive,
    /// A generator starts from nothing, and does not follow its predecessor.
    NothingFollows,
    /// A generator follows its predecessor when shared memory is created, which may be long before
    /// a promotion.
    FollowsAtStart,
    /// A written mark runs too far ahead.
    TooFarAhead,
    /// Each advance is forced.
    AlwaysForced,
    /// A reader goes up to the lane's last id, whatever the database's mark.
    Uncovered,
    /// A reader goes up to a mark that is not durable.
    CoveredUnflushed,
    /// A reader goes up to a mark of which only one copy is stored.
    CoveredByOneCopy,
    /// A reader goes up to the backup lane's mark, whatever the numbers.
    CoveredByEitherLane,
    /// A draw takes marks without numbers for the server's own.
    OwnWithoutNumbers,
    /// The registry compares, and writes later.
    NotAtomic,
    /// A swap compares the number's record alone.
    NumberAlone,
    /// The registry's clock says that a number is free, and the lease begins at the server's clock.
    FromClock,
    /// Published marks do not end with the lease.
    NotFolded,
    /// A lease may end at any distance from the registry's clock.
    NoCap,
    /// Records of an older generation are renewed, wherever they end.
    NoHorizon,
    /// A freeze lasts as long as a lease, and no skew longer.
    FreezeOfLength,
    /// Freeze and horizon allow for one skew, although the registry's clock may change with its
    /// machine.
    OneSkew,
    /// A lost answer is taken for a no.
    LostIsNo,
    /// A lost answer is taken for a yes.
    LostIsYes,
    /// What can be read, but is not durable, is taken for an answer.
    ReadIsYes,
    /// Numbers change, and published marks stay.
    TornNumbers,
    /// Numbers change, and the lanes stay in the tick of the last id.
    SameTick,
    /// What is given back ends with the primary lane's tick.
    OneLane,
    /// The holder survives a crash, which loses the marks that were not flushed. Its lanes follow
    /// the clock.
    SameHolder,
    /// A mark is published before the ceiling is raised to it.
    PublishedFirst,
    /// The holder goes on after a crash, and no ceiling was noted.
    NoCeiling,
    /// A page does not show that the lease was given back, where that was not answered.
    ReturnsUnnoted,
    /// A page has an older holder.
    OlderHolder,
    /// A holder goes on with another secret.
    OtherSecret,
    /// A page is written after the call.
    CallsFirst,
    /// A life that was followed by another one writes the page.
    NoFence,
    /// A life goes on from a page, and its lanes stay at the beginning of time until it draws.
    LanesNotRaised,
    /// A life that goes on draws before the clock has reached where it begins.
    EntersEarly,
    /// An orphan publishes a mark although the next life has the page.
    OrphansPublish,
    /// An orphan reads the page, and writes it after others have: no lock keeps them apart.
    NoWriterLock,
    /// A postmaster takes the page of a server that runs.
    NoPostmasterLock,
    /// A copy of a directory brings a copy of its page.
    CopiedPage,
    /// An orphan goes on without a page where that is broken.
    BrokenIsOwn,
    /// A registry that was lost, and is made again, freezes nothing.
    LostUnfrozen,
    /// Leases are longer as soon as the fleet's limit is raised.
    UsedAtOnce,
    /// A limit is lowered.
    LowersLimits,
    /// An operator closes a fleet whose registry may have forgotten something, which no server has
    /// noted.
    ClosesUnnoted,
    /// An operator makes a fleet anew, and closes it for that, whose registry may have forgotten
    /// something, which no server has noted.
    LostUnnoted,
    /// An operator opens a moved fleet that was not closed.
    OpensUnclosed,
    /// An operator opens a moved fleet again, although the registry may have forgotten the first
    /// time.
    OpensAgain,
    /// An operator vouches for a registry that may have forgotten something.
    VouchesUnnoted,
    /// An operator keeps a number, and does not look whether a lost lease of it may run.
    ReservesLost,
    /// An operator keeps a number in a registry that may have forgotten something.
    ReservesUnnoted,
    /// An operator keeps a number up to what is asked for, also where a lost lease of it has ended
    /// later.
    ReservesUnfrozen,
    /// An operator widens the range to a number that is kept, and a standby does not have that.
    WidensEarly,
    /// After a restore, the fleet's limits are those of the backup.
    RestoredForgetful,
    /// Settings are reset while servers draw.
    ResetsRunning,
    /// Settings are reset without closing the fleet first.
    ResetsOpen,
    /// A reset lets leases be as long as the next server's limit.
    ResetsRaise,
    /// A reset lets leases be as long as the limit was.
    ResetsToLimit,
    /// Only the first of two resets keeps leases as short as they were.
    ResetsTwice,
    /// The freeze after a restore is as long as a lease, and no skew longer.
    RestoredShort,
    /// A restore ends what an operator keeps.
    CutsKept,
    /// An operator deletes records that end up to a second after what is deleted.
    DropsEarly,
    /// A raise of the limit raises what is used, where nothing was set.
    RaisesBoth,
    /// What a server borrows lengthens its leases, up to the fleet's limit.
    BorrowLengthens,
    /// A lease is as long as an operator has set, whatever the fleet's limit is.
    BeyondLimit,
    /// The first server brings a limit of its own.
    BringsOther,
    /// A database may be drawn in with the leases of any fleet.
    AnyFleet,
    /// Another fleet is accepted, and the marks stay.
    AcceptsUnraised,
    /// A call compares the tags' records alone, and no incarnation afterwards either.
    NotCompared,
    /// The answer's incarnation is not looked at.
    AnyIncarnation,
    /// A new generation does not move the tags.
    NoJumps,
    /// A tag jumps once, however many generations were forgotten.
    OneJump,
    /// A generation is one more than the one before, however many timelines there were.
    NoTimelines,
    /// A tag jumps by its least step.
    ShortJump,
    /// The registry answers before what it has written is durable.
    NotDurable,
    /// What is given back is compared by the next value, and not by the nonce.
    ComparedByValue,
    /// What is given back is not compared.
    NotComparedAtAll,
    /// A server gives back though another one has reserved a block since.
    AnyReturn,
    /// What is given back is not taken out of the places.
    NotTakenOut,
    /// The blocks survive a crash as they were a while before.
    BlocksSurvive,
    /// A session remembers its place, and not the claim.
    NoClaim,
    /// Tags are told apart by their names alone.
    NoId,
    /// A server forgets up to where it has had values.
    NothingAbove,
    /// What a server has given back still counts as had.
    ReturnsCount,
    /// The next block is reserved again and again, and only the last one is kept.
    Wasted,
    /// A server that stops gives nothing back.
    NothingBack,
    /// Blocks are as large as a server wishes.
    AnyStep,
    /// A tag that cannot give values is never asked for again.
    NeverAgain,
    /// The registry begins a block where a session wishes, also below the values that it has given.
    WishLowers,
    /// The registry does not look at what a session wishes.
    NoWish,
    /// After a restore, a tag jumps once, however old the backup is.
    NoAge,
    /// Servers tell generations apart by their numbers alone.
    ByNumber,
    /// A tag jumps by less than what the registry forgets: ten greatest steps.
    TenSteps,
    /// After a restore, a tag jumps as if all clocks were right.
    NoSkew,
    /// A tag that an operator raises after a restore is of the generation that has not begun yet.
    WritesGeneration,
    /// After a restore, an operator writes the fleet's record first, and the tags later.
    FleetFirst,
    /// Of two operators who say at once that the registry was restored, each begins a generation.
    SecondBegins,
    /// An operator lowers a tag's next value.
    LowersNext,
    /// What an operator says of a tag is of the generation before the one that the next server
    /// begins. So is a tag that is made then.
    SaysTooEarly,
    /// An operator says where a tag goes on, and another generation has begun since that was
    /// chosen.
    SaysLate,
    /// An operator changes a tag while the registry is being moved.
    ChangesClosed,
    /// A fleet that is made anew is not closed first.
    LostAtOnce,
    /// What an operator says of a tag is of the generation that the next server begins.
    SaysAhead,
    /// What an operator sets takes the place of the jumps that are due.
    InPlaceOfJumps,
    /// A tag jumps by a number of its greatest steps, which an operator can raise.
    JumpsByStep,
    /// An operator writes a tag's record with the nonce that it had.
    KeepsNonce,
}
