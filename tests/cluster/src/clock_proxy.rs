//! A proxy before an etcd, which moves the clock that etcd tells. Every connection has one of its
//! own to the same member. In all answers the header `Date` is rewritten, and nothing else.
//!
//! libfaketime does not reach etcd, which asks the kernel without the C library.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::server::locked;

/// What stands before a date, and how long a date is (RFC 9110: IMF-fixdate).
const NAME: &[u8] = b"Date: ";
const DATE: usize = 29;

/// The proxy, with one port of 127.0.0.1 for each member of the etcd.
#[derive(Debug)]
pub struct ClockProxy {
    ports: Vec<u16>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    offset_s: i64,
    /// The greatest time that was told.
    greatest: SystemTime,
    is_open: bool,
    has_ended: bool,
    /// The client's and the member's end of each connection.
    connections: BTreeMap<u64, [TcpStream; 2]>,
    count: u64,
}

impl ClockProxy {
    /// Starts a proxy for members that listen on these ports of 127.0.0.1. It moves no clock yet.
    ///
    /// # Panics
    ///
    /// Panics if there is no free port.
    #[must_use]
    pub fn start(members: &[u16]) -> Self {
        let state = Arc::new(Mutex::new(State {
            offset_s: 0,
            greatest: SystemTime::UNIX_EPOCH,
            is_open: true,
            has_ended: false,
            connections: BTreeMap::new(),
            count: 0,
        }));
        let start = |member: &u16| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are free ports");
            let port = listener.local_addr().expect("it listens").port();
            let (state, member) = (Arc::clone(&state), *member);
            thread::spawn(move || accept(&listener, member, &state));
            port
        };
        Self { ports: members.iter().map(start).collect(), state }
    }

    /// Returns the string with which servers reach the etcd through the proxy.
    #[must_use]
    pub fn address(&self) -> String {
        let urls: Vec<_> = self.ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
        format!("etcd:{}", urls.join(","))
    }

    /// Sets the clock that is told off the real one, in seconds, from the next answer on.
    pub fn set_offset(&self, seconds: i64) {
        locked(&self.state).offset_s = seconds;
    }

    /// Returns whether the clock that is told is behind a time that was told before.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let state = locked(&self.state);
        moved(SystemTime::now(), state.offset_s) < state.greatest
    }

    /// Closes all connections, and takes no new one.
    pub fn close(&self) {
        let mut state = locked(&self.state);
        state.is_open = false;
        close_all(&mut state);
    }

    /// Takes connections again.
    pub fn open(&self) {
        locked(&self.state).is_open = true;
    }
}

impl Drop for ClockProxy {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        state.has_ended = true;
        close_all(&mut state);
        drop(state);
        for port in &self.ports {
            // Wakes the thread that accepts.
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, *port));
        }
    }
}

fn close_all(state: &mut State) {
    for stream in std::mem::take(&mut state.connections).into_values().flatten() {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, member: u16, state: &Arc<Mutex<State>>) {
    for client in listener.incoming().map_while(Result::ok) {
        if locked(state).has_ended {
            return;
        }
        let state = Arc::clone(state);
        thread::spawn(move || connect(&client, member, &state));
    }
}

/// Forwards a connection until one of its ends closes it. An error of either end is the end.
fn connect(client: &TcpStream, member: u16, state: &Mutex<State>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, member)) else { return };
    let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be cloned");
    let number = {
        let mut state = locked(state);
        if !state.is_open || state.has_ended {
            return;
        }
        state.count += 1;
        let number = state.count;
        state.connections.insert(number, [clone(client), clone(&server)]);
        number
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &*client, &mut &server);
            let _ = server.shutdown(Shutdown::Both);
        });
        let _ = pass_on(&server, client, state);
        let _ = client.shutdown(Shutdown::Both);
    });
    locked(state).connections.remove(&number);
}

/// Passes answers on, with another date.
fn pass_on(mut server: &TcpStream, mut client: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let (mut waiting, mut part) = (Vec::new(), [0; 65536]);
    while let length @ 1.. = server.read(&mut part)? {
        waiting.extend_from_slice(&part[..length]);
        let is_ready = rewrite(&mut waiting, |date| {
            let mut state = locked(state);
            let told = moved(date, state.offset_s);
            state.greatest = state.greatest.max(told);
            told
        });
        client.write_all(&waiting[..is_ready])?;
        waiting.drain(..is_ready);
    }
    Ok(())
}

fn moved(time: SystemTime, seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { time - distance } else { time + distance }
}

/// Changes the dates in a part of a stream. Returns how much of it may be passed on: not the begin
/// of a date whose end has not arrived.
fn rewrite(part: &mut [u8], mut change: impl FnMut(SystemTime) -> SystemTime) -> usize {
    let mut at = 0;
    loop {
        let rest = &part[at..];
        // The name, or as much of it as there is at the end. It begins a line.
        let begins = |from: &usize| {
            let is_first = *from + at == 0 || part[at + from - 1] == b'\n';
            is_first && rest[*from..].iter().zip(NAME).all(|(byte, expected)| byte == expected)
        };
        let Some(from) = (0..rest.len()).find(begins) else { return part.len() };
        let Some(date) = part.get_mut(at + from + NAME.len()..at + from + NAME.len() + DATE) else { return at + from };
        // Anything else than a date stays as it is.
        if let Some(time) = std::str::from_utf8(date).ok().and_then(|date| httpdate::parse_http_date(date).ok()) {
            date.copy_from_slice(httpdate::fmt_http_date(change(time)).as_bytes());
        }
        at += from + NAME.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{\"x\":\"Date: none\"}";

    #[test]
    fn a_date_is_moved_wherever_the_stream_is_cut() {
        let expected = ANSWER.replace("06 Nov 1994 08:49:37", "06 Nov 1994 08:49:27");
        for cut in 0..=ANSWER.len() {
            let (mut waiting, mut passed) = (Vec::new(), Vec::new());
            for part in [&ANSWER[..cut], &ANSWER[cut..], ANSWER] {
                waiting.extend_from_slice(part.as_bytes());
                let is_ready = rewrite(&mut waiting, |date| moved(date, -10));
                passed.extend(waiting.drain(..is_ready));
            }
            assert_eq!(String::from_utf8(passed).unwrap(), format!("{expected}{expected}"), "cut at {cut}");
        }
    }

    /// What is held back until more arrives would never arrive at the end of an answer.
    #[test]
    fn nothing_of_a_whole_answer_is_held_back() {
        for answer in [ANSWER.to_owned(), format!("{ANSWER}\n"), format!("{ANSWER}\r\n0\r\n\r\n")] {
            assert_eq!(rewrite(&mut answer.clone().into_bytes(), |date| date), answer.len());
        }
    }
}
