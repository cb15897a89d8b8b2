//! A connection to a member of an etcd that never waits without a deadline: TCP, TLS and HTTP/1.1.
//!
//! The three have no socket of their own (`ureq_proto`, `rustls`) or do not block (`socket2`), and
//! a [`Waiter`] waits. Nothing here starts a thread. Only a host's name is looked up by the system,
//! which cannot be told to stop (see the head of the crate).

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
use super::problem::Problem;
use crate::connection::{Interest, Stopped, Waiter};
use crate::error::{Error, Step};

/// The longest answer, in bytes: the records of all numbers of the largest layout, and some more.
const LONGEST: usize = 64 << 20;

/// The longest head of a request, in bytes.
const HEAD: usize = 4096;

/// An answer.
pub(crate) struct Answer {
    pub status: u16,
    /// The header `Date`.
    pub date: Option<String>,
    pub body: Vec<u8>,
}

/// Until when a step may last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub step: Step,
    pub after: Duration,
    at: Instant,
}

impl Deadline {
    pub fn new(step: Step, after: Duration) -> Self {
        Self { step, after, at: Instant::now() + after }
    }

    fn left(&self) -> Result<Duration, Error> {
        let left = self.at.saturating_duration_since(Instant::now());
        let timed_out = Error::Etcd(Problem::TimedOut { step: self.step, after: self.after });
        if left.is_zero() { Err(timed_out) } else { Ok(left) }
    }

    fn lost(&self, text: impl ToString) -> Error {
        Error::Lost { step: self.step, text: text.to_string() }
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
pub(crate) struct Connection<W: Waiter> {
    // Closed before the permission for it is given back: fields are dropped in this order.
    socket: Socket,
    tls: Option<ClientConnection>,
    waiter: Rc<W>,
    endpoint: Endpoint,
    /// What was received beyond the last answer.
    rest: Vec<u8>,
    _descriptor: Descriptor<W>,
}

impl<W: Waiter> Connection<W> {
    /// Connects to the first of the host's addresses that answers. Each has the whole of `timeout`.
    pub fn open(endpoint: &Endpoint, address: &Address, timeout: Duration, waiter: &Rc<W>) -> Result<Self, Error> {
        let unreachable = |why: &dyn ToString| {
            let why = why.to_string();
            Error::Etcd(Problem::Unreachable(format!("Connection to \"{}\" failed: {why}.", endpoint.authority())))
        };
        let tls = endpoint.has_tls.then(|| tls(endpoint, address)).transpose()?;
        let addresses = (&*endpoint.host, endpoint.port).to_socket_addrs().map_err(|error| unreachable(&error))?;
        let mut failure = unreachable(&"the name has no address");
        for socket_address in addresses {
            if !waiter.acquire_descriptor() {
                return Err(Error::NoDescriptor);
            }
            let descriptor = Descriptor(Rc::clone(waiter));
            let deadline = Deadline::new(Step::Connect, timeout);
            let socket = match connect(socket_address, &**waiter, &deadline) {
                Ok(socket) => socket,
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(Error::Lost { text, .. }) => {
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
                Err(Error::Lost { text, .. }) => failure = unreachable(&text),
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
    ) -> Result<(Answer, bool), Error> {
        let scheme = if self.endpoint.has_tls { "https" } else { "http" };
        let garbage = |error: &dyn ToString| Error::Garbage(error.to_string());
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
            return Err(Error::Garbage("the head of a request is too long".to_owned()));
        };
        let (_, written) = call.write(body, &mut output[used..]).map_err(|error| garbage(&error))?;
        used += written;
        self.send(&output[..used], deadline)?;
        let Some(mut call) = call.proceed() else { return Err(Error::Garbage("a request was cut".to_owned())) };

        let mut input = std::mem::take(&mut self.rest);
        let response = loop {
            let (taken, response) = call.try_response(&input, false).map_err(|error| garbage(&error))?;
            input.drain(..taken);
            if let Some(response) = response {
                break response;
            }
            if !self.receive(&mut input, deadline)? {
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
                    if whole.len() > LONGEST {
                        return Err(Error::Garbage(format!("more than {LONGEST} bytes")));
                    }
                    let is_by_length = !matches!(call.body_mode(), ureq_proto::BodyMode::CloseDelimited);
                    if call.can_proceed() && (is_by_length || !is_open) {
                        break;
                    }
                    if taken == 0 && given == 0 {
                        if !is_open {
                            return Err(deadline.lost("etcd closed the connection."));
                        }
                        is_open = self.receive(&mut input, deadline)?;
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
        Ok((Answer { status, date, body: whole }, !must_close))
    }

    fn shake_hands(&mut self, deadline: &Deadline) -> Result<(), Error> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.flush(deadline)?;
            if self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) && !self.receive_tls(deadline)? {
                return Err(deadline.lost("etcd closed the connection"));
            }
        }
        self.flush(deadline)
    }

    fn send(&mut self, mut bytes: &[u8], deadline: &Deadline) -> Result<(), Error> {
        while !bytes.is_empty() {
            let written = match &mut self.tls {
                Some(tls) => tls.writer().write(bytes).map_err(|error| deadline.lost(error))?,
                None => match (&self.socket).write(bytes) {
                    Ok(written) => written,
                    Err(error) => {
                        self.blocked(error, Interest::Write, deadline)?;
                        0
                    }
                },
            };
            bytes = &bytes[written..];
            self.flush(deadline)?;
        }
        Ok(())
    }

    /// Sends what TLS has to send.
    fn flush(&mut self, deadline: &Deadline) -> Result<(), Error> {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            if let Err(error) = tls.write_tls(&mut &self.socket) {
                self.blocked(error, Interest::Write, deadline)?;
            }
        }
        Ok(())
    }

    /// Receives something. Returns false at the end of the connection.
    fn receive(&mut self, input: &mut Vec<u8>, deadline: &Deadline) -> Result<bool, Error> {
        let mut part = [0; 16 << 10];
        loop {
            let received = match &mut self.tls {
                Some(tls) => tls.reader().read(&mut part),
                None => (&self.socket).read(&mut part),
            };
            match received {
                Ok(length) => {
                    input.extend_from_slice(&part[..length]);
                    return Ok(length > 0);
                }
                Err(error) if self.tls.is_some() && error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.receive_tls(deadline)? {
                        return Ok(false);
                    }
                }
                Err(error) => self.blocked(error, Interest::Read, deadline)?,
            }
        }
    }

    /// Receives something of TLS. Returns false at the end of the connection.
    fn receive_tls(&mut self, deadline: &Deadline) -> Result<bool, Error> {
        loop {
            let Some(tls) = &mut self.tls else { return Ok(false) };
            match tls.read_tls(&mut &self.socket) {
                Ok(length) => {
                    tls.process_new_packets().map_err(|error| deadline.lost(error))?;
                    return Ok(length > 0);
                }
                Err(error) => self.blocked(error, Interest::Read, deadline)?,
            }
        }
    }

    /// Waits if the socket is not ready. Any other error is one.
    fn blocked(&self, error: io::Error, interest: Interest, deadline: &Deadline) -> Result<(), Error> {
        match error.kind() {
            io::ErrorKind::WouldBlock => wait(&self.socket, interest, &*self.waiter, deadline),
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(deadline.lost(error)),
        }
    }
}

fn wait<W: Waiter>(socket: &Socket, interest: Interest, waiter: &W, deadline: &Deadline) -> Result<(), Error> {
    loop {
        let left = deadline.left()?;
        if waiter.wait(socket.as_fd(), interest, left).map_err(|Stopped| Error::Stopped)? {
            return Ok(());
        }
    }
}

fn connect<W: Waiter>(address: SocketAddr, waiter: &W, deadline: &Deadline) -> Result<Socket, Error> {
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
fn tls(endpoint: &Endpoint, address: &Address) -> Result<(Arc<ClientConfig>, ServerName<'static>), Error> {
    let file = |path: &Path, error: &dyn ToString| Error::Etcd(Problem::File(unreadable(path, &error.to_string())));
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Error> {
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
        .map_err(|error| Error::Etcd(Problem::Refused(error.to_string())))?
        .with_root_certificates(roots);
    let config = match &address.identity {
        Some((cert, key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, &error))?;
            builder.with_client_auth_cert(certificates(cert)?, private).map_err(|error| file(cert, &error))?
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|error| Error::Etcd(Problem::Unreachable(format!("\"{}\": {error}.", endpoint.host))))?;
    Ok((Arc::new(config), name))
}
