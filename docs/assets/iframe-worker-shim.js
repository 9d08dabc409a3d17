// A page that is opened as a file may not start a web worker, and the search of the site runs in one.
// There, this class runs the script of the worker in a hidden frame, with the same messages.
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.url = new URL(url, document.baseURI).href;
      const source = document.createElement("iframe");
      source.hidden = true;
      source.srcdoc = "<!doctype html><title>worker</title>";
      this.ready = new Promise((resolve) => {
        source.addEventListener("load", () => resolve(this.prepare(source)), { once: true });
      });
      document.body.append(source);
      this.frame = source;
    }

    // Give the frame the functions that a worker has, then load the script.
    prepare(source) {
      const inside = source.contentWindow;
      const load = (url) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          script.src = url;
          script.onload = resolve;
          script.onerror = reject;
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (typeof this.onmessage === "function") this.onmessage(event);
      };
      inside.importScripts = (...urls) => urls.reduce((last, url) => last.then(() => load(url)), Promise.resolve());
      return load(this.url).then(() => inside);
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
