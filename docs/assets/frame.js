// The interactive page in its frame: the frame is as high as its content.

const frame = document.querySelector("iframe.explore");
if (frame) {
  addEventListener("message", (event) => {
    if (event.source !== frame.contentWindow || !(event.data.height > 0)) return;
    frame.style.height = `${event.data.height + frame.offsetHeight - frame.clientHeight}px`;
  });
  frame.contentWindow.postMessage("height", "*"); // answered if the frame was loaded first
}
