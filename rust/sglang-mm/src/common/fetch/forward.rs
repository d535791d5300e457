//! Plain requests through a forwarding proxy: the request line contains the whole URL.
//!
//! ureq can only tunnel, and many proxies tunnel to port 443 only. So this module inserts the
//! origin into the request line when it is sent.
//!
//! Invariant: no other output of the client is changed.

use ureq::{
    Error,
    unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport},
};

/// The offset of the path in the request line.
const PATH: usize = "GET ".len();

/// A connector that inserts this origin, if any, before the path of each request.
#[derive(Debug)]
pub(super) struct Forward(pub(super) Option<String>);

#[derive(Debug)]
pub(super) struct Forwarded<T> {
    transport: T,
    origin: Option<String>,
}

impl<In: Transport> Connector<In> for Forward {
    type Out = Forwarded<In>;

    fn connect(
        &self,
        _: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|transport| Forwarded {
            transport,
            origin: self.0.clone(),
        }))
    }
}

impl<T: Transport> Transport for Forwarded<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, mut amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        // Only the first write, which starts with the request line, gets the origin.
        if let Some(origin) = self.origin.take() {
            let output = self.transport.buffers().output();
            let from = PATH + origin.len();
            if amount + origin.len() > output.len() {
                return Err(Error::ConnectProxyFailed("the URL is too long".to_owned()));
            }
            output.copy_within(PATH..amount, from);
            output[PATH..from].copy_from_slice(origin.as_bytes());
            amount += origin.len();
        }
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.transport.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }
}
