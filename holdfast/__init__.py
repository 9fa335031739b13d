"""The public face of Holdfast: from holdfast import Producer, Consumer, Admin."""
