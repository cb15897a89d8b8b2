//! A connection to PostgreSQL that never waits without a deadline: a small, safe part of libpq.
//!
//! libpq is used in its non-blocking form: it says what it waits for, and a [`Waiter`] waits.
//! After an error a connection is of no use, and its owner drops it. The `unsafe` here relies on
//! one fact: a `PGconn` belongs to one `Connection`, which frees it when dropped, once. It is not
//! `Send`, because of the raw pointer. What else libpq gives out: `libpq.rs`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pq_sys as pq;

use crate::conninfo::{Host, Options};
use crate::error::{Diagnostic, RegistryError};
use crate::libpq::{Answered, OptionArray, Rows, copied, diagnostic_of, one_paragraph};
use crate::step::RegistryStep;

/// What is waited for on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or its end.
    Read,
    /// Room to write.
    Write,
    /// One of the two.
    ReadOrWrite,
}

/// The process that waits is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// How a process waits for a socket: a server's worker on its latch, another program with `poll`.
pub trait Waiter {
    /// Waits until the socket is ready, or the timeout is over. Returns whether the socket is
    /// ready. It may return `false` earlier, and is called again then.
    ///
    /// # Errors
    /// [`Stopped`], if the process is asked to end.
    fn wait(&self, socket: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> Result<bool, Stopped>;

    /// Asks for permission to open another file: `AcquireExternalFD` in a server. Returns whether
    /// it is given.
    fn acquire_descriptor(&self) -> bool {
        true
    }

    /// Says that a file is closed for which permission was given: `ReleaseExternalFD` in a server.
    fn release_descriptor(&self) {}
}

/// The rows of an answer, as texts, and the notices that came with it.
#[derive(Debug, Default)]
pub(crate) struct StatementAnswer {
    pub rows: Rows,
    pub notices: Vec<Diagnostic>,
}

/// How many notices may come with an answer.
const MOST_NOTICES: usize = 100;

/// A connection.
pub(crate) struct PostgresConnection<W: Waiter> {
    conn: *mut pq::PGconn,
    /// Where libpq puts notices. An `Rc`, because libpq has its address, too.
    notices: Rc<RefCell<Vec<Diagnostic>>>,
    waiter: Rc<W>,
}

impl<W: Waiter> PostgresConnection<W> {
    /// Connects. Each host that the options name has the whole of `timeout`, like libpq's
    /// `connect_timeout`, which works only where libpq waits by itself.
    pub fn open(options: &Options, timeout: Duration, waiter: &Rc<W>) -> Result<Self, RegistryError> {
        let (mut options, mut hosts, mut late) = (options.clone(), None, String::new());
        loop {
            let mut connection = Self::start(&options, waiter)?;
            let error = match connection.establish(timeout) {
                Ok(()) => return Ok(connection),
                Err(RegistryError::Connect(text)) => return Err(RegistryError::Connect(late + &text)),
                Err(error @ RegistryError::TimedOut { .. }) => error,
                Err(error) => return Err(error),
            };
            // libpq would never go on to the next host by itself.
            let (name, port) = connection.host();
            let hosts = hosts.get_or_insert_with(|| connection.hosts());
            let Some(tried) = hosts.iter().position(|host| (&host.name, &host.port) == (&name, &port)) else {
                return Err(error);
            };
            hosts.remove(tried);
            if hosts.is_empty() {
                return Err(error);
            }
            late += &format!("connection to server at \"{name}\", port {port} timed out ");
            options = options.with_hosts(hosts);
        }
    }

    fn start(options: &Options, waiter: &Rc<W>) -> Result<Self, RegistryError> {
        if !waiter.acquire_descriptor() {
            return Err(RegistryError::NoDescriptor);
        }
        let (keywords, values): (Vec<_>, Vec<_>) =
            options.iter().map(|(keyword, value)| (keyword.as_ptr(), value.as_ptr())).unzip();
        let terminated = |mut texts: Vec<*const c_char>| {
            texts.push(ptr::null());
            texts
        };
        let (keywords, values) = (terminated(keywords), terminated(values));
        // SAFETY: both arrays end with a null pointer, and hold as many C strings, which `options`
        // owns. libpq copies them.
        let conn = unsafe { pq::PQconnectStartParams(keywords.as_ptr(), values.as_ptr(), 0) };
        // From here on, dropping it releases everything.
        let connection = Self { conn, notices: Rc::default(), waiter: Rc::clone(waiter) };
        if conn.is_null() {
            return Err(RegistryError::Connect("libpq is out of memory.".to_owned()));
        }
        let notices = Rc::as_ptr(&connection.notices);
        // SAFETY: what the Rc holds lives as long as the PGconn (see Drop), and stays where it is
        // when the connection moves. `keep_notice` expects what is passed here.
        unsafe { pq::PQsetNoticeReceiver(conn, Some(keep_notice), notices.cast_mut().cast()) };
        Ok(connection)
    }

    fn establish(&mut self, timeout: Duration) -> Result<(), RegistryError> {
        let (mut at, mut deadline) = (self.host(), Instant::now() + timeout);
        // SAFETY: conn is a live PGconn; so in the functions below.
        if unsafe { pq::PQstatus(self.conn) } == pq::ConnStatusType::CONNECTION_BAD {
            return Err(RegistryError::Connect(self.error_text()));
        }
        let mut interest = Interest::Write;
        loop {
            self.wait(interest, deadline, RegistryStep::Connect, timeout)?;
            // SAFETY: as above.
            interest = match unsafe { pq::PQconnectPoll(self.conn) } {
                pq::PostgresPollingStatusType::PGRES_POLLING_OK => break,
                pq::PostgresPollingStatusType::PGRES_POLLING_READING => Interest::Read,
                pq::PostgresPollingStatusType::PGRES_POLLING_WRITING => Interest::Write,
                _ => return Err(RegistryError::Connect(self.error_text())),
            };
            let now_at = self.host();
            if now_at != at {
                (at, deadline) = (now_at, Instant::now() + timeout);
            }
        }
        // SAFETY: as above.
        if unsafe { pq::PQsetnonblocking(self.conn, 1) } != 0 {
            return Err(RegistryError::Connect(self.error_text()));
        }
        Ok(())
    }

    /// Runs one statement, in a transaction of its own. Parameters are texts.
    ///
    /// An answer is complete only when libpq says so: the rows come before the commit.
    pub fn run(
        &mut self,
        sql: &CStr,
        values: &[Option<String>],
        step: RegistryStep,
        timeout: Duration,
    ) -> Result<StatementAnswer, RegistryError> {
        let deadline = Instant::now() + timeout;
        self.notices.borrow_mut().clear();
        self.send(sql, values, step)?;
        // Otherwise libpq would keep all rows before it gives out the first one.
        // SAFETY: conn is a live PGconn, which has just been sent a statement.
        if unsafe { pq::PQsetSingleRowMode(self.conn) } != 1 {
            return Err(self.lost(step));
        }
        self.flush(step, deadline, timeout)?;
        let (answer, answers) = self.collect(step, deadline, timeout)?;
        if answers != 1 {
            return Err(RegistryError::Garbage("no result for a statement".to_owned()));
        }
        Ok(answer)
    }

    /// Runs statements that have no parameters, and whose rows are not wanted. Returns their
    /// notices.
    pub fn run_script(
        &mut self,
        sql: &CStr,
        step: RegistryStep,
        timeout: Duration,
    ) -> Result<Vec<Diagnostic>, RegistryError> {
        let deadline = Instant::now() + timeout;
        self.notices.borrow_mut().clear();
        // SAFETY: conn is a live PGconn, and the text a C string, which libpq copies.
        if unsafe { pq::PQsendQuery(self.conn, sql.as_ptr()) } != 1 {
            return Err(self.lost(step));
        }
        self.flush(step, deadline, timeout)?;
        self.collect(step, deadline, timeout).map(|(answer, _)| answer.notices)
    }

    /// Takes the results of what was sent. Returns the rows with the notices, and how many
    /// statements had rows.
    fn collect(
        &mut self,
        step: RegistryStep,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<(StatementAnswer, u32), RegistryError> {
        let (mut answer, mut failure, mut answers) = (StatementAnswer::default(), None, 0);
        while let Some(answered) = self.next(step, deadline, timeout)? {
            self.check_notices()?;
            match answered.status() {
                pq::ExecStatusType::PGRES_SINGLE_TUPLE => answered.add_rows(&mut answer.rows)?,
                // It comes behind the rows, and has none.
                pq::ExecStatusType::PGRES_TUPLES_OK => answers += 1,
                // A statement without rows, such as CREATE.
                pq::ExecStatusType::PGRES_COMMAND_OK => {}
                pq::ExecStatusType::PGRES_FATAL_ERROR => {
                    let diagnostic = answered.diagnostic();
                    // The first one says why. What may follow is that the connection is closed.
                    let has_ended = matches!(diagnostic.severity.as_str(), "" | "FATAL" | "PANIC");
                    failure.get_or_insert(if has_ended {
                        RegistryError::Lost { step, text: one_paragraph(&diagnostic.message) }
                    } else {
                        RegistryError::Refused(Box::new(diagnostic))
                    });
                }
                // COPY would have no end.
                status => return Err(RegistryError::Garbage(format!("result of kind {status:?}"))),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        // SAFETY: conn is a live PGconn.
        if unsafe { pq::PQstatus(self.conn) } != pq::ConnStatusType::CONNECTION_OK {
            return Err(self.lost(step));
        }
        // SAFETY: as above.
        if unsafe { pq::PQtransactionStatus(self.conn) } != pq::PGTransactionStatusType::PQTRANS_IDLE {
            return Err(RegistryError::Garbage("a transaction is left open".to_owned()));
        }
        answer.notices = self.notices.take();
        Ok((answer, answers))
    }

    /// Returns the process id of the session, as the server tells it.
    pub fn backend_pid(&self) -> i32 {
        // SAFETY: conn is a live PGconn.
        unsafe { pq::PQbackendPID(self.conn) }
    }

    fn send(&mut self, sql: &CStr, values: &[Option<String>], step: RegistryStep) -> Result<(), RegistryError> {
        let texts: Vec<Option<CString>> = values.iter().map(|value| value.as_deref().map(c_text)).collect();
        let pointers: Vec<*const c_char> =
            texts.iter().map(|text| text.as_ref().map_or(ptr::null(), |text| text.as_ptr())).collect();
        let count = c_int::try_from(pointers.len()).expect("a statement has few parameters");
        // SAFETY: there are `count` pointers, each null or to a C string that outlives the call.
        // Without types, lengths and formats, all are texts.
        let sent = unsafe {
            pq::PQsendQueryParams(
                self.conn,
                sql.as_ptr(),
                count,
                ptr::null(),
                pointers.as_ptr(),
                ptr::null(),
                ptr::null(),
                0,
            )
        };
        if sent == 1 { Ok(()) } else { Err(self.lost(step)) }
    }

    fn flush(&mut self, step: RegistryStep, deadline: Instant, timeout: Duration) -> Result<(), RegistryError> {
        // SAFETY: conn is a live PGconn; so below.
        while unsafe { pq::PQflush(self.conn) } == 1 {
            self.wait(Interest::ReadOrWrite, deadline, step, timeout)?;
            // A server that waits until its answer is read does not read. A failure shows below.
            // SAFETY: as above.
            unsafe { pq::PQconsumeInput(self.conn) };
        }
        // A failure to write shows in the next answer, behind what the server has said before.
        Ok(())
    }

    /// Waits for the next result; `None` if the statement is over.
    fn next(
        &mut self,
        step: RegistryStep,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<Option<Answered>, RegistryError> {
        // SAFETY: conn is a live PGconn; so below.
        while unsafe { pq::PQisBusy(self.conn) } == 1 {
            self.wait(Interest::Read, deadline, step, timeout)?;
            self.check_notices()?;
            // SAFETY: as above.
            let is_read = unsafe { pq::PQconsumeInput(self.conn) } == 1;
            self.drop_notifications();
            // What the server said before it closed the connection is still to be understood.
            // SAFETY: as above.
            if !is_read && unsafe { pq::PQisBusy(self.conn) } == 1 {
                return Err(self.lost(step));
            }
        }
        // SAFETY: as above. libpq is not busy, so that it does not wait.
        let result = unsafe { pq::PQgetResult(self.conn) };
        // SAFETY: a result that is not null is for the caller to free.
        Ok((!result.is_null()).then(|| unsafe { Answered::new(result) }))
    }

    /// Refuses an answer that comes with more notices than are kept. One of the others may say that
    /// a commit is not what it should be.
    fn check_notices(&self) -> Result<(), RegistryError> {
        let is_full = self.notices.borrow().len() > MOST_NOTICES;
        if is_full { Err(RegistryError::TooLong { most: MOST_NOTICES, of_what: "notices" }) } else { Ok(()) }
    }

    /// Frees notifications (NOTIFY), which this session has not asked for. libpq keeps them.
    fn drop_notifications(&self) {
        loop {
            // SAFETY: conn is a live PGconn.
            let notification = unsafe { pq::PQnotifies(self.conn) };
            if notification.is_null() {
                return;
            }
            // SAFETY: libpq has allocated it, and leaves it to the caller to free.
            unsafe { pq::PQfreemem(notification.cast()) };
        }
    }

    /// Waits until the socket is ready.
    fn wait(
        &self,
        interest: Interest,
        deadline: Instant,
        step: RegistryStep,
        timeout: Duration,
    ) -> Result<(), RegistryError> {
        loop {
            // SAFETY: conn is a live PGconn.
            let socket: RawFd = unsafe { pq::PQsocket(self.conn) };
            if socket < 0 {
                return Err(self.lost(step));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(RegistryError::TimedOut { step, after: timeout });
            }
            // SAFETY: the socket is open, because libpq closes it only when it is called.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            if self.waiter.wait(socket, interest, left).map_err(|Stopped| RegistryError::Stopped)? {
                return Ok(());
            }
        }
    }

    /// Returns the name and the port of the host that is connected, or tried.
    fn host(&self) -> (String, String) {
        // SAFETY: conn is a live PGconn. The texts are null or C strings of it, and copied here.
        unsafe { (copied(pq::PQhost(self.conn)), copied(pq::PQport(self.conn))) }
    }

    /// Returns the hosts among which libpq chooses, with what it has found in a service file and in
    /// the environment.
    pub fn hosts(&self) -> Vec<Host> {
        // SAFETY: conn is a live PGconn. libpq returns null or an array for the caller to free.
        let array = unsafe { OptionArray::new(pq::PQconninfo(self.conn)) };
        Host::list(&array.options())
    }

    fn lost(&self, step: RegistryStep) -> RegistryError {
        RegistryError::Lost { step, text: self.error_text() }
    }

    fn error_text(&self) -> String {
        // SAFETY: conn is a live PGconn. The text is a C string of it, and copied here.
        one_paragraph(&unsafe { copied(pq::PQerrorMessage(self.conn)) })
    }
}

impl<W: Waiter> Drop for PostgresConnection<W> {
    fn drop(&mut self) {
        // SAFETY: conn is null or a live PGconn, which nothing uses afterwards. The notices are
        // freed after this.
        unsafe { pq::PQfinish(self.conn) };
        self.waiter.release_descriptor();
    }
}

/// Keeps a notice. libpq calls it from functions that get the `PGconn`.
unsafe extern "C" fn keep_notice(notices: *mut c_void, result: *const pq::PGresult) {
    // SAFETY: `start` has passed the address of what lives as long as the PGconn. The result is
    // live during this call.
    unsafe {
        let notices = &*notices.cast_const().cast::<RefCell<Vec<Diagnostic>>>();
        // No borrow is held while libpq runs.
        if let Ok(mut notices) = notices.try_borrow_mut()
            && notices.len() <= MOST_NOTICES
        {
            notices.push(diagnostic_of(result));
        }
    }
}

/// Returns a parameter as a C string, up to its first NUL, which no text of PostgreSQL can hold.
fn c_text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).expect("what has a NUL was cut off")
}
