//! Plain requests through a proxy that forwards them: the request line holds the whole URL.
//!
//! ureq itself only tunnels, and many proxies tunnel to port 443 alone. So the origin is
//! put into the first line on its way out.
//!
//! Invariant: nothing else of what the client writes is changed.

use ureq::{
    Error,
    unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport},
};

/// Where the method ends and the path begins.
const PATH: usize = "GET ".len();

/// Puts this origin, if there is one, before the path of each request.
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
        // The first write begins with the request line, and only that needs it.
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
