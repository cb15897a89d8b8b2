//! Connection strings and URIs of libpq: whether one is right, and what of it may be shown.

use std::ffi::{CStr, CString};

use crate::libpq::OptionArray;

/// What a view may show. Everything else may hold a secret, or be of no help.
const SHOWN: [&CStr; 6] = [c"service", c"host", c"hostaddr", c"port", c"dbname", c"user"];

/// Checks a connection string or URI, without connecting.
///
/// # Errors
/// What libpq says about it, which may repeat a word of the string.
///
/// ```
/// use snowflake_registry::check_conninfo;
///
/// assert_eq!(check_conninfo("host=a,b dbname=ids target_session_attrs=read-write"), Ok(()));
/// assert_eq!(check_conninfo("hots=a"), Err("invalid connection option \"hots\"".to_owned()));
/// ```
pub fn check_conninfo(conninfo: &str) -> Result<(), String> {
    Options::parse(conninfo).map(|_| ())
}

/// Returns what of a connection string may be shown: service, hosts, ports, database and user.
/// Returns an empty text for a string that libpq refuses.
///
/// ```
/// use snowflake_registry::without_secrets;
///
/// assert_eq!(without_secrets("postgresql://me:secret@a:5433/ids"), "host=a port=5433 dbname=ids user=me");
/// ```
pub fn without_secrets(conninfo: &str) -> String {
    let options = Options::parse(conninfo).unwrap_or_default();
    let shown = SHOWN.iter().filter_map(|keyword| Some((keyword, options.get(keyword)?)));
    shown
        .map(|(keyword, value)| format!("{}={}", keyword.to_string_lossy(), quoted(&value.to_string_lossy())))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns a value as a connection string has it.
fn quoted(value: &str) -> String {
    let is_plain = !value.is_empty() && !value.contains([' ', '\'', '\\', '\t', '\n', '\r']);
    if is_plain { value.to_owned() } else { format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'")) }
}

/// The options of a connection: keywords and values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options(Vec<(CString, CString)>);

impl Options {
    /// Takes the options from a connection string or URI.
    pub fn parse(conninfo: &str) -> Result<Self, String> {
        let conninfo = CString::new(conninfo).map_err(|_| "connection string has a character NUL".to_owned())?;
        OptionArray::parse(&conninfo).map(|array| Self(array.options()))
    }

    /// Adds what this crate wants unless the string says something else.
    pub fn with_defaults(mut self) -> Self {
        // The fallback, because the environment or the service file may also name one.
        for (keyword, value) in [(c"fallback_application_name", c"snowflake_id"), (c"client_encoding", c"UTF8")] {
            if self.get(keyword).is_none() {
                self.0.push((keyword.to_owned(), value.to_owned()));
            }
        }
        self
    }

    /// Replaces the hosts.
    pub fn with_hosts(&self, hosts: &[Host]) -> Self {
        let mut options = self.clone();
        options.0.retain(|(keyword, _)| ![c"host", c"hostaddr", c"port"].contains(&keyword.as_c_str()));
        let list = |part: fn(&Host) -> &str| {
            CString::new(hosts.iter().map(part).collect::<Vec<_>>().join(",")).expect("libpq's texts have no NUL")
        };
        options.0.push((c"host".to_owned(), list(|host| &host.name)));
        if hosts.iter().any(|host| !host.address.is_empty()) {
            options.0.push((c"hostaddr".to_owned(), list(|host| &host.address)));
        }
        options.0.push((c"port".to_owned(), list(|host| &host.port)));
        options
    }

    /// Returns keywords and values.
    pub fn iter(&self) -> impl Iterator<Item = (&CStr, &CStr)> {
        self.0.iter().map(|(keyword, value)| (keyword.as_c_str(), value.as_c_str()))
    }

    fn get(&self, keyword: &CStr) -> Option<&CStr> {
        self.iter().find(|(name, _)| *name == keyword).map(|(_, value)| value)
    }
}

/// One of the hosts that a connection string names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub name: String,
    pub address: String,
    pub port: String,
}

impl Host {
    /// Returns the hosts in libpq's options, which are lists with commas.
    pub fn list(options: &[(CString, CString)]) -> Vec<Self> {
        let options = Options(options.to_vec());
        let list = |keyword| -> Vec<String> {
            let text = options.get(keyword).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
            if text.is_empty() { Vec::new() } else { text.split(',').map(str::to_owned).collect() }
        };
        let (names, addresses, ports) = (list(c"host"), list(c"hostaddr"), list(c"port"));
        let port = |number: usize| {
            // One port serves all hosts.
            let port = if ports.len() == 1 { ports.first() } else { ports.get(number) };
            port.filter(|port| !port.is_empty()).cloned().unwrap_or_else(|| "5432".to_owned())
        };
        let of = |list: &[String], number: usize| list.get(number).cloned().unwrap_or_default();
        (0..names.len().max(addresses.len()))
            .map(|number| {
                let address = of(&addresses, number);
                let name = of(&names, number);
                // What libpq reports of a host that has an address only.
                let name = if name.is_empty() { address.clone() } else { name };
                Self { name, address, port: port(number) }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_string_is_refused_with_what_libpq_says() {
        for (conninfo, said) in [
            ("etcd:https://a:2379", "missing \"=\""),
            ("host=a hots=b", "invalid connection option \"hots\""),
            ("host='a", "unterminated quoted string"),
            ("host=a\0", "NUL"),
        ] {
            let error = check_conninfo(conninfo).unwrap_err();
            assert!(error.contains(said), "{conninfo}: {error}");
        }
        for conninfo in ["", "service=fleet", "postgresql://a,b:5433/ids?target_session_attrs=read-write"] {
            assert_eq!(check_conninfo(conninfo), Ok(()));
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let secrets = "password=s1 sslpassword=s2 passfile=/s3 sslkey=/s4 options='-c s5=1' sslrootcert=s6";
        let shown = without_secrets(&format!("host=a,b port=1,2 {secrets} dbname='my ids' user='o''x' service=x"));
        // Two quotes in a row end one quoted part and begin another one.
        assert_eq!(shown, "");
        let shown = without_secrets(&format!("host=a,b port=1,2 {secrets} dbname='my ids' user='o\\'x' service=x"));
        assert_eq!(shown, "service=x host=a,b port=1,2 dbname='my ids' user='o\\'x'");
        assert_eq!(without_secrets("postgresql://u:s@h/d?sslpassword=s&password=s"), "host=h dbname=d user=u");
        assert_eq!(without_secrets("password=s nonsense"), "");
        // It is a connection string again.
        assert_eq!(without_secrets(&shown), shown);
    }

    #[test]
    fn hosts_and_ports_belong_together() {
        let hosts = |conninfo: &str| Host::list(&Options::parse(conninfo).unwrap().0);
        let host = |name: &str, address: &str, port: &str| Host {
            name: name.to_owned(),
            address: address.to_owned(),
            port: port.to_owned(),
        };
        assert_eq!(hosts("host=a,b port=1,2"), [host("a", "", "1"), host("b", "", "2")]);
        assert_eq!(hosts("host=a,b port=1"), [host("a", "", "1"), host("b", "", "1")]);
        assert_eq!(hosts("host=a,b port=,2"), [host("a", "", "5432"), host("b", "", "2")]);
        assert_eq!(
            hosts("hostaddr=127.0.0.1,::1"),
            [host("127.0.0.1", "127.0.0.1", "5432"), host("::1", "::1", "5432")]
        );
        assert_eq!(hosts("dbname=ids"), []);
        let options = Options::parse("host=a,b port=1,2 user=me").unwrap().with_hosts(&[host("b", "", "2")]);
        let options: Vec<_> = options.iter().collect();
        assert_eq!(options, [(c"user", c"me"), (c"host", c"b"), (c"port", c"2")]);
    }
}
