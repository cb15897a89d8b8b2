//! Where an etcd is, as the setting says it: `etcd:https://a:2379,https://b:2379?user=snowflake`.
//!
//! The parameters after `?` have the names of etcdctl's options. They are in the string, as those
//! of a connection to PostgreSQL are, so that one setting says where numbers come from. Secrets are
//! in files, because views show settings.

use std::fs;
use std::path::{Path, PathBuf};

/// What a string for etcd begins with.
pub(crate) const SCHEME: &str = "etcd:";

const PARAMETERS: &str = "cacert, cert, key, user, password_file, prefix";

/// Under which key all records are, unless the string has another `prefix`.
const PREFIX: &str = "/snowflake_id/";

/// One member of the etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub has_tls: bool,
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    /// Returns host and port as a URL has them.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Understands one address. A refusal names it by its number, from 1: a wrong one may hold a
    /// password.
    fn parse(number: usize, url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("etcd's address {number} {why}, as in \"https://etcd.example:2379\"");
        let (has_tls, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(wrong("must begin with http:// or https://")),
        };
        if rest.contains('@') {
            return Err("a password in \"snowflake_id.registry\" could be seen; use user and password_file".to_owned());
        }
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(|| wrong("needs a port"))?;
        let port = port.parse().map_err(|_| wrong("needs a port"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_right = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if bare.is_empty() || !bare.chars().all(is_right) || (bare == host && host.contains(':')) {
            return Err(wrong("needs a host"));
        }
        Ok(Self { has_tls, host: bare.to_owned(), port })
    }
}

/// What the string says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub endpoints: Vec<Endpoint>,
    /// The certificates of the authorities that etcd's own one must be signed by.
    pub cacert: Option<PathBuf>,
    /// This server's certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    pub prefix: String,
}

impl Address {
    /// Understands a string that begins with [`SCHEME`]. It does not look at the files.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("it must begin with \"{SCHEME}\""))?;
        let (urls, query) = rest.split_once('?').unwrap_or((rest, ""));
        let endpoints = (1..).zip(urls.split(',')).map(|(number, url)| Endpoint::parse(number, url.trim()));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        let (mut cacert, mut cert, mut key, mut user, mut password_file) = (None, None, None, None, None);
        let mut prefix = PREFIX.to_owned();
        // By its number: what is not understood may be a part of a password.
        for (number, pair) in (1..).zip(query.split('&').filter(|pair| !pair.is_empty())) {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("parameter {number} has no value"))?;
            let value = decoded(value).ok_or_else(|| format!("parameter {number} has a wrong % in its value"))?;
            match name {
                "cacert" => cacert = Some(absolute(name, value)?),
                "cert" => cert = Some(absolute(name, value)?),
                "key" => key = Some(absolute(name, value)?),
                "password_file" => password_file = Some(absolute(name, value)?),
                "user" => user = Some(value),
                "prefix" => prefix = value,
                "password" => {
                    return Err(
                        "a password in \"snowflake_id.registry\" could be seen; put it into a file, and name that \
                         as password_file"
                            .to_owned(),
                    );
                }
                _ => return Err(format!("parameter {number} is none of etcd's: {PARAMETERS}")),
            }
        }
        if endpoints.iter().any(|endpoint| endpoint.has_tls) && cacert.is_none() {
            return Err("https:// needs the parameter cacert, the file of the authority's certificate".to_owned());
        }
        if user.is_some() != password_file.is_some() {
            return Err("parameters user and password_file belong together".to_owned());
        }
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("parameters cert and key belong together".to_owned()),
        };
        Ok(Self { endpoints, cacert, identity, user, password_file, prefix })
    }

    /// Reads the password, without the newline at the end of its file.
    pub fn password(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.password_file else { return Ok(None) };
        let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
    }

    /// Returns what a view may show.
    pub fn shown(&self) -> String {
        let url = |endpoint: &Endpoint| {
            format!("{}://{}", if endpoint.has_tls { "https" } else { "http" }, endpoint.authority())
        };
        let urls = self.endpoints.iter().map(url).collect::<Vec<_>>().join(",");
        let user = self.user.as_ref().map(|user| format!("?user={}", encoded(user))).unwrap_or_default();
        format!("{SCHEME}{urls}{user}")
    }
}

/// Says that a file cannot be read.
pub(crate) fn unreadable(path: &Path, error: &impl std::fmt::Display) -> String {
    format!("could not read file \"{}\": {error}", path.display())
}

fn absolute(name: &str, value: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err(format!("parameter {name} must be an absolute path")) }
}

/// Writes a text with %XX for all but letters, digits, `-`, `.` and `_`: as a part of a key, of a
/// record or of a URL.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

/// Reads what [`encoded`] writes. `None` if a % is not followed by two digits, or the text is not
/// UTF-8.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_understood() {
        let address = Address::parse(
            "etcd:https://a:2379,http://[::1]:1?cacert=/ca&cert=/c&key=/k&user=s%26o&password_file=/p&prefix=/x/",
        );
        let address = address.unwrap();
        assert_eq!(address.endpoints[0], Endpoint { has_tls: true, host: "a".to_owned(), port: 2379 });
        assert_eq!(address.endpoints[1].authority(), "[::1]:1");
        assert_eq!(address.identity, Some(("/c".into(), "/k".into())));
        assert_eq!((address.user.as_deref(), &*address.prefix), (Some("s&o"), "/x/"));
        assert_eq!(address.shown(), "etcd:https://a:2379,http://[::1]:1?user=s%26o");
    }

    #[test]
    fn a_wrong_address_is_refused() {
        for (text, why) in [
            ("etcd:", "must begin with http"),
            ("etcd:a:2379", "must begin with http"),
            ("etcd:http://a", "needs a port"),
            ("etcd:http://a:x", "needs a port"),
            ("etcd:http://:1", "needs a host"),
            ("etcd:http://::1:1", "needs a host"),
            ("etcd:http://a:1,", "must begin with http"),
            ("etcd:http://u:p@a:1", "could be seen"),
            ("etcd:https://a:1", "cacert"),
            ("etcd:http://a:1?user=x", "belong together"),
            ("etcd:http://a:1?cert=/x", "belong together"),
            ("etcd:http://a:1?password=x", "could be seen"),
            ("etcd:http://a:1?user=x&pasword=x", "parameter 2 is none of etcd's"),
            ("etcd:http://a:1?user", "has no value"),
            ("etcd:http://a:1?user=%4", "wrong %"),
            ("etcd:https://a:1?cacert=ca.pem", "absolute"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn no_word_of_a_wrong_address_is_repeated() {
        for text in [
            "etcd:s3cret",
            "etcd:http:/u:s3cret@a:1",
            "etcd:http://a:1,u:s3cret@b:1",
            "etcd:http://u:s3cret@a:1",
            "etcd:http://a:s3cret",
            "etcd:http://a:1?s3cret",
            "etcd:http://a:1?s3cret=x",
            "etcd:http://a:1?user=s3cret%4",
            "etcd:http://a:1?s3cret=%4",
            "etcd:http://a:1?user=x&password=s3cret",
            "etcd:http://a:1?user=x&password_file=s3cret",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(!error.contains("s3cret"), "{text}: {error}");
        }
    }
}
