//! A connection to a member of an etcd that never waits without a deadline: TCP, TLS and HTTP/1.1.
//!
//! The three have no socket of their own (`ureq_proto`, `rustls`) or do not block (`socket2`), and
//! a [`Waiter`] waits. It is asked before every read and write, also where the socket is ready: a
//! peer that sends without a pause must not keep the process from its deadline or its end. Nothing
//! here starts a thread. Only a host's name is looked up by the system, which cannot be told to
//! stop (see the head of the crate).

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use socket2::{Domain, Protocol, Socket, Type};
use ureq_proto::client::{Call, RecvResponseResult, SendRequestResult};
use ureq_proto::http::{Request, header};

use super::address::{Address, Endpoint, unreadable};
use crate::connection::{Interest, Stopped, Waiter};
use crate::error::RegistryError;
use crate::problem::Problem;
use crate::step::RegistryStep;

/// The longest answer, in bytes, with its head and what separates its chunks: the records of 65,536
/// numbers, and some more.
const LONGEST: usize = 64 << 20;

/// The longest head of an answer or of a chunk, in bytes.
const LONGEST_HEAD: usize = 64 << 10;

/// How many informational answers, such as `100 Continue`, may come before an answer.
const MOST_INFORMATIONAL: usize = 10;

/// The longest head of a request, in bytes.
const HEAD: usize = 4096;

/// An answer.
pub(crate) struct HttpAnswer {
    pub status: u16,
    /// The header `Date`.
    pub date: Option<String>,
    pub body: Vec<u8>,
}

/// Until when a step may last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub step: RegistryStep,
    pub after: Duration,
    at: Instant,
}

impl Deadline {
    pub fn new(step: RegistryStep, after: Duration) -> Self {
        Self { step, after, at: Instant::now() + after }
    }

    pub fn left(&self) -> Result<Duration, RegistryError> {
        let left = self.at.saturating_duration_since(Instant::now());
        let timed_out = RegistryError::Etcd(Problem::TimedOut { step: self.step, after: self.after });
        if left.is_zero() { Err(timed_out) } else { Ok(left) }
    }

    fn lost(&self, text: impl ToString) -> RegistryError {
        RegistryError::Lost { step: self.step, text: text.to_string() }
    }
}

/// The permission to have a file open, given back at the end.
struct Descriptor<W: Waiter>(Rc<W>);

impl<W: Waiter> Drop for Descriptor<W> {
    fn drop(&mut self) {
        self.0.release_descriptor();
    }
}

/// A connection, which keeps alive.
pub(crate) struct HttpConnection<W: Waiter> {
    // Closed before the permission for it is given back: fields are dropped in this order.
    socket: Socket,
    tls: Option<ClientConnection>,
    waiter: Rc<W>,
    endpoint: Endpoint,
    /// What was received beyond the last answer.
    rest: Vec<u8>,
    _descriptor: Descriptor<W>,
}

impl<W: Waiter> HttpConnection<W> {
    /// Connects to the first of the host's addresses that answers. Each has the whole of `timeout`.
    pub fn open(
        endpoint: &Endpoint,
        address: &Address,
        timeout: Duration,
        waiter: &Rc<W>,
    ) -> Result<Self, RegistryError> {
        let unreachable = |why: &dyn ToString| {
            let why = why.to_string();
            RegistryError::Etcd(Problem::Unreachable(format!(
                "Connection to \"{}\" failed: {why}.",
                endpoint.authority()
            )))
        };
        let tls = endpoint.has_tls.then(|| tls(endpoint, address)).transpose()?;
        let addresses = (&*endpoint.host, endpoint.port).to_socket_addrs().map_err(|error| unreachable(&error))?;
        let mut failure = unreachable(&"the name has no address");
        for socket_address in addresses {
            if !waiter.acquire_descriptor() {
                return Err(RegistryError::NoDescriptor);
            }
            let descriptor = Descriptor(Rc::clone(waiter));
            let deadline = Deadline::new(RegistryStep::Connect, timeout);
            let socket = match connect(socket_address, &**waiter, &deadline) {
                Ok(socket) => socket,
                Err(RegistryError::Stopped) => return Err(RegistryError::Stopped),
                Err(RegistryError::Lost { text, .. }) => {
                    failure = unreachable(&text);
                    continue;
                }
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            let connection = tls
                .as_ref()
                .map(|(config, name)| ClientConnection::new(Arc::clone(config), name.clone()))
                .transpose()
                .map_err(|error| unreachable(&error))?;
            let (waiter, endpoint) = (Rc::clone(waiter), endpoint.clone());
            let mut this =
                Self { socket, tls: connection, waiter, endpoint, rest: Vec::new(), _descriptor: descriptor };
            match this.shake_hands(&deadline) {
                Ok(()) => return Ok(this),
                Err(RegistryError::Lost { text, .. }) => failure = unreachable(&text),
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }

    /// Returns this end's port.
    pub fn local_port(&self) -> Option<u16> {
        self.socket.local_addr().ok()?.as_socket().map(|address| address.port())
    }

    /// Sends a request, and waits for the whole of its answer. After an error the connection is of
    /// no use. Returns with the answer whether it may be used again.
    pub fn post(
        &mut self,
        path: &str,
        token: Option<&str>,
        body: &[u8],
        deadline: &Deadline,
    ) -> Result<(HttpAnswer, bool), RegistryError> {
        let scheme = if self.endpoint.has_tls { "https" } else { "http" };
        let garbage = |error: &dyn ToString| RegistryError::Garbage(error.to_string());
        let mut request = Request::post(format!("{scheme}://{}{path}", self.endpoint.authority()))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, body.len());
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(()).map_err(|error| garbage(&error))?;
        let mut call = Call::new(request).map_err(|error| garbage(&error))?.proceed();
        let mut output = vec![0; HEAD + body.len()];
        let mut used = call.write(&mut output).map_err(|error| garbage(&error))?;
        let Ok(Some(SendRequestResult::SendBody(mut call))) = call.proceed() else {
            return Err(RegistryError::Garbage("the head of a request is too long".to_owned()));
        };
        let (_, written) = call.write(body, &mut output[used..]).map_err(|error| garbage(&error))?;
        used += written;
        self.send(&output[..used], deadline)?;
        let Some(mut call) = call.proceed() else { return Err(RegistryError::Garbage("a request was cut".to_owned())) };

        let mut input = std::mem::take(&mut self.rest);
        let (mut received, mut informational) = (0, 0);
        let response = loop {
            let (taken, response) = call.try_response(&input, false).map_err(|error| garbage(&error))?;
            input.drain(..taken);
            if let Some(response) = response {
                break response;
            }
            if taken > 0 {
                // What follows an informational answer may be here already.
                informational += 1;
                if informational > MOST_INFORMATIONAL {
                    return Err(too_long(MOST_INFORMATIONAL, "informational answers"));
                }
                continue;
            }
            if input.len() > LONGEST_HEAD {
                return Err(too_long(LONGEST_HEAD, "bytes in a head"));
            }
            if !self.receive(&mut input, &mut received, deadline)? {
                return Err(deadline.lost("etcd closed the connection."));
            }
        };
        let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok()).map(str::to_owned);
        let (status, mut whole) = (response.status().as_u16(), Vec::new());
        let must_close = match call.proceed() {
            Some(RecvResponseResult::RecvBody(mut call)) => {
                let mut part = vec![0; 64 << 10];
                let mut is_open = true;
                loop {
                    let (taken, given) = call.read(&input, &mut part).map_err(|error| garbage(&error))?;
                    input.drain(..taken);
                    whole.extend_from_slice(&part[..given]);
                    // Heads, and what separates chunks and follows them.
                    let other = received.saturating_sub(whole.len() + input.len());
                    if other > 2 * LONGEST_HEAD + whole.len() / 8 {
                        return Err(too_long(2 * LONGEST_HEAD + whole.len() / 8, "bytes beside its body"));
                    }
                    let is_by_length = !matches!(call.body_mode(), ureq_proto::BodyMode::CloseDelimited);
                    if call.can_proceed() && (is_by_length || !is_open) {
                        break;
                    }
                    if taken == 0 && given == 0 {
                        if !is_open {
                            return Err(deadline.lost("etcd closed the connection."));
                        }
                        if input.len() > LONGEST_HEAD {
                            return Err(too_long(LONGEST_HEAD, "bytes in a chunk's head"));
                        }
                        is_open = self.receive(&mut input, &mut received, deadline)?;
                    }
                }
                match call.proceed() {
                    Some(ureq_proto::client::RecvBodyResult::Cleanup(call)) => call.must_close_connection(),
                    _ => true,
                }
            }
            Some(RecvResponseResult::Cleanup(call)) => call.must_close_connection(),
            _ => true,
        };
        self.rest = input;
        Ok((HttpAnswer { status, date, body: whole }, !must_close))
    }

    fn shake_hands(&mut self, deadline: &Deadline) -> Result<(), RegistryError> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.flush(deadline)?;
            if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) && !self.receive_tls(deadline)? {
                return Err(deadline.lost("etcd closed the connection"));
            }
        }
        self.flush(deadline)
    }

    fn send(&mut self, mut bytes: &[u8], deadline: &Deadline) -> Result<(), RegistryError> {
        while !bytes.is_empty() {
            let written = match &mut self.tls {
                Some(tls) => tls.writer().write(bytes).map_err(|error| deadline.lost(error))?,
                None => {
                    wait(&self.socket, Interest::Write, &*self.waiter, deadline)?;
                    not_ready((&self.socket).write(bytes)).map_err(|error| deadline.lost(error))?.unwrap_or(0)
                }
            };
            bytes = &bytes[written..];
            self.flush(deadline)?;
        }
        Ok(())
    }

    /// Sends what TLS has to send.
    fn flush(&mut self, deadline: &Deadline) -> Result<(), RegistryError> {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            wait(&self.socket, Interest::Write, &*self.waiter, deadline)?;
            not_ready(tls.write_tls(&mut &self.socket)).map_err(|error| deadline.lost(error))?;
        }
        Ok(())
    }

    /// Receives something, and counts it. Returns false at the end of the connection.
    fn receive(
        &mut self,
        input: &mut Vec<u8>,
        received: &mut usize,
        deadline: &Deadline,
    ) -> Result<bool, RegistryError> {
        let mut part = [0; 16 << 10];
        loop {
            let read = match &mut self.tls {
                Some(tls) => tls.reader().read(&mut part),
                None => {
                    wait(&self.socket, Interest::Read, &*self.waiter, deadline)?;
                    (&self.socket).read(&mut part)
                }
            };
            if let Some(length) = not_ready(read).map_err(|error| deadline.lost(error))? {
                *received += length;
                if *received > LONGEST {
                    return Err(too_long(LONGEST, "bytes"));
                }
                input.extend_from_slice(&part[..length]);
                return Ok(length > 0);
            }
            if self.tls.is_some() && !self.receive_tls(deadline)? {
                return Ok(false);
            }
        }
    }

    /// Receives something of TLS. Returns false at the end of the connection.
    fn receive_tls(&mut self, deadline: &Deadline) -> Result<bool, RegistryError> {
        loop {
            wait(&self.socket, Interest::Read, &*self.waiter, deadline)?;
            let Some(tls) = &mut self.tls else { return Ok(false) };
            if let Some(length) = not_ready(tls.read_tls(&mut &self.socket)).map_err(|error| deadline.lost(error))? {
                tls.process_new_packets().map_err(|error| deadline.lost(error))?;
                return Ok(length > 0);
            }
        }
    }
}

fn too_long(most: usize, of_what: &'static str) -> RegistryError {
    RegistryError::TooLong { most, of_what }
}

/// Returns what a read or a write has done; `None` if it could do nothing yet.
fn not_ready(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(length) => Ok(Some(length)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

fn wait<W: Waiter>(socket: &Socket, interest: Interest, waiter: &W, deadline: &Deadline) -> Result<(), RegistryError> {
    loop {
        let left = deadline.left()?;
        if waiter.wait(socket.as_fd(), interest, left).map_err(|Stopped| RegistryError::Stopped)? {
            return Ok(());
        }
    }
}

fn connect<W: Waiter>(address: SocketAddr, waiter: &W, deadline: &Deadline) -> Result<Socket, RegistryError> {
    let lost = |error: io::Error| deadline.lost(error);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).map_err(lost)?;
    socket.set_nonblocking(true).map_err(lost)?;
    socket.set_tcp_nodelay(true).map_err(lost)?;
    // A refusal shows below.
    if socket.connect(&address.into()).is_err() {
        wait(&socket, Interest::Write, waiter, deadline)?;
    }
    match socket.take_error() {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => return Err(lost(error)),
    }
    socket.peer_addr().map_err(lost)?;
    Ok(socket)
}

/// Prepares TLS as the address says. Files are read at each connection, so that a certificate can
/// be replaced while the server runs.
fn tls(endpoint: &Endpoint, address: &Address) -> Result<(Arc<ClientConfig>, ServerName<'static>), RegistryError> {
    let file =
        |path: &Path, error: &dyn ToString| RegistryError::Etcd(Problem::File(unreadable(path, &error.to_string())));
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, RegistryError> {
        let opened = File::open(path).map_err(|error| file(path, &error))?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(opened).collect();
        let found = found.map_err(|error| file(path, &error))?;
        if found.is_empty() { Err(file(path, &"it has no certificate")) } else { Ok(found) }
    };
    let mut roots = RootCertStore::empty();
    if let Some(path) = &address.cacert {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| file(path, &error))?;
        }
    }
    // Without a provider of its own, rustls would look for one in the whole process.
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| RegistryError::Etcd(Problem::Refused(error.to_string())))?
        .with_root_certificates(roots);
    let config = match &address.identity {
        Some((cert, key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, &error))?;
            builder.with_client_auth_cert(certificates(cert)?, private).map_err(|error| file(cert, &error))?
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|error| RegistryError::Etcd(Problem::Unreachable(format!("\"{}\": {error}.", endpoint.host))))?;
    Ok((Arc::new(config), name))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{BufRead, BufReader};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::BorrowedFd;
    use std::thread;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::etcd::SCHEME;

    const LONG: Duration = Duration::from_secs(600);

    /// Waits with `poll`, and counts.
    #[derive(Default)]
    struct Counting {
        reads: Cell<usize>,
        /// After how many reads the process is asked to end.
        ends_after: Option<usize>,
    }

    impl Waiter for Counting {
        fn wait(&self, socket: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> Result<bool, Stopped> {
            let flags = if interest == Interest::Write { PollFlags::POLLOUT } else { PollFlags::POLLIN };
            self.reads.set(self.reads.get() + usize::from(interest == Interest::Read));
            if self.ends_after.is_some_and(|reads| self.reads.get() > reads) {
                return Err(Stopped);
            }
            let timeout = PollTimeout::try_from(timeout.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            Ok(poll(&mut [PollFd::new(socket, flags)], timeout).is_ok_and(|ready| ready > 0))
        }
    }

    /// Listens on a port of 127.0.0.1 for one connection. Reads the head of a request, and then
    /// does `answer` until that fails.
    fn peer(answer: impl Fn(&mut TcpStream) -> io::Result<()> + Send + 'static) -> Address {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let has_head = lines.any(|line| line.is_empty());
            while has_head && answer(&mut stream).is_ok() {}
        });
        Address::parse(&format!("{SCHEME}http://127.0.0.1:{port}")).unwrap()
    }

    /// Sends a text first, and then another one without end.
    fn endless(first: &str, then: &str) -> Address {
        let (first, then) = (Cell::new(first.to_owned()), then.repeat(10_000 / then.len()));
        peer(move |stream| {
            stream.write_all(first.take().as_bytes())?;
            stream.write_all(then.as_bytes())
        })
    }

    /// Answers once, and then says nothing more.
    fn silent_after(answer: String) -> Address {
        peer(move |stream| {
            stream.write_all(answer.as_bytes())?;
            stream.read_exact(&mut [0; 1000])
        })
    }

    fn open(address: &Address, waiter: Counting) -> (HttpConnection<Counting>, Rc<Counting>) {
        let waiter = Rc::new(waiter);
        (HttpConnection::open(&address.endpoints[0], address, LONG, &waiter).unwrap(), waiter)
    }

    fn post(connection: &mut HttpConnection<Counting>, deadline: &Deadline) -> Result<HttpAnswer, RegistryError> {
        connection.post("/v3/kv/txn", None, b"{}", deadline).map(|(answer, _)| answer)
    }

    fn answer_of(address: &Address) -> Result<HttpAnswer, RegistryError> {
        let (mut connection, _) = open(address, Counting::default());
        post(&mut connection, &Deadline::new(RegistryStep::Read, LONG))
    }

    const HEAD_OF_CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// Without limits, none of these calls would ever end: the socket is never empty.
    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let cases = [
            ("a header", "HTTP/1.1 200 OK\r\nX: ", "x", "bytes in a head"),
            ("no line at all", "", "\r\n", "bytes in a head"),
            ("informational answers", "", "HTTP/1.1 100 Continue\r\n\r\n", "informational answers"),
            ("others", "", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", "informational answers"),
            ("chunks of a byte", HEAD_OF_CHUNKS, "1\r\nx\r\n", "bytes beside its body"),
            ("the extension of a chunk", HEAD_OF_CHUNKS, "1;xxxxxxxx", "bytes in a chunk's head"),
            ("one chunk", &format!("{HEAD_OF_CHUNKS}ffffffffffffffff\r\n"), "x", "bytes"),
            ("trailers", &format!("{HEAD_OF_CHUNKS}0\r\n"), "x: y\r\n", "bytes beside its body"),
            ("a length", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", "x", "bytes"),
            ("no length", "HTTP/1.0 200 OK\r\n\r\n", "x", "bytes"),
            ("an error", "HTTP/1.1 500 No\r\n\r\n", "x", "bytes"),
        ];
        for (name, first, then, what) in cases {
            match answer_of(&endless(first, then)) {
                Err(RegistryError::TooLong { of_what, .. }) => assert_eq!(of_what, what, "{name}"),
                other => panic!("{name}: {:?}", other.map(|answer| answer.body.len())),
            }
        }
        // The library has limits of its own for these.
        for (name, first, then) in [
            ("headers", "HTTP/1.1 200 OK\r\n", "X: y\r\n"),
            ("the number of a chunk", HEAD_OF_CHUNKS, "00000000000000000000000\r\n"),
        ] {
            let error = answer_of(&endless(first, then)).map(|answer| answer.body.len()).unwrap_err();
            assert!(matches!(error, RegistryError::Garbage(_)), "{name}: {error:?}");
        }
    }

    #[test]
    fn an_answer_is_found_behind_informational_ones_that_came_with_it() {
        let informational = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
        let answer = format!("{informational}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer_of(&silent_after(answer)).unwrap().body, b"hi");
    }

    /// The socket is always ready, so the process would not look at its signals otherwise.
    #[test]
    fn a_process_that_is_asked_to_end_does_not_read_on() {
        let address = endless("HTTP/1.1 200 OK\r\n\r\n", "x");
        let (mut connection, waiter) = open(&address, Counting { ends_after: Some(3), ..Counting::default() });
        let error = post(&mut connection, &Deadline::new(RegistryStep::Read, LONG)).map(|answer| answer.body.len());
        assert_eq!((error, waiter.reads.get()), (Err(RegistryError::Stopped), 4));
    }

    #[test]
    fn no_read_comes_without_a_look_at_deadline_and_signals() {
        let length = 1 << 20;
        let body = "x".repeat(length);
        let address = silent_after(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"));
        let (mut connection, waiter) = open(&address, Counting::default());
        assert_eq!(post(&mut connection, &Deadline::new(RegistryStep::Read, LONG)).unwrap().body.len(), length);
        // A read takes 16 kB.
        assert!(waiter.reads.get() >= length / (16 << 10), "{}", waiter.reads.get());
    }

    #[test]
    fn a_call_whose_time_is_over_neither_sends_nor_reads() {
        let address = endless("HTTP/1.1 200 OK\r\n\r\n", "x");
        let (mut connection, waiter) = open(&address, Counting::default());
        let error =
            post(&mut connection, &Deadline::new(RegistryStep::Read, Duration::ZERO)).map(|answer| answer.body.len());
        assert!(matches!(error, Err(RegistryError::Etcd(Problem::TimedOut { .. }))), "{error:?}");
        assert_eq!(waiter.reads.get(), 0);
    }
}
